"""Runs in S3: whole objects or none, one owner of a lock, and errors that say what to set."""

from __future__ import annotations

import pickle
import random
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from memprobe.errors import MissingPrerequisite, StorageError, UsageError
from storage import lock, s3
from storage.files import open_files
from storage.runs import RunStore, Unit
from storage.s3 import S3Files
from tests.storage.rows import new_run, verdict
from tests.support.s3 import SECRET, Bucket

NAMES = ("a b", "ü", "user=x y", "100%", "a+b&c=d", "q?#f", "[x]*", "'\"", "你好", "a//b", "%20")


@pytest.fixture
def files(bucket: Bucket) -> S3Files:
    return S3Files(bucket.url("pre fix/ü+%20"))


def test_names_of_any_kind_are_kept_apart(files: S3Files) -> None:
    for name in NAMES:
        files.write(f"d/{name}.txt", name.encode())
    assert files.find("d", ".txt") == sorted(f"d/{name}.txt" for name in NAMES)
    for name in NAMES:
        assert files.read(f"d/{name}.txt") == name.encode()
        assert files.size(f"d/{name}.txt") == len(name.encode())
    files.remove(f"d/{NAMES[0]}.txt")
    files.remove(f"d/{NAMES[0]}.txt")
    assert files.size(f"d/{NAMES[0]}.txt") is None
    assert len(files.find("d", ".txt")) == len(NAMES) - 1


def test_a_prefix_is_a_folder_and_not_the_beginning_of_a_name(bucket: Bucket) -> None:
    inner, other = S3Files(bucket.url("run")), S3Files(bucket.url("run2"))
    for place in (inner, other):
        place.write("tab/x.txt", b"1")
        place.write("table/x.txt", b"1")
        place.write("tab/.hidden.txt", b"1")
    assert inner.find("tab", ".txt") == ["tab/x.txt"]
    assert S3Files(bucket.url()).folders() == ["run", "run2"]


def test_listings_go_on_past_a_thousand_objects(files: S3Files) -> None:
    import concurrent.futures as futures

    names = [f"many/{i:04}.txt" for i in range(1100)]
    with futures.ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda name: files.write(name, b"x"), names))
    assert files.find("many", ".txt") == names


def test_a_tag_changes_with_the_content(files: S3Files) -> None:
    files.write("f.txt", b"1")
    before = files.listing("", ".txt")
    files.write("f.txt", b"2")
    after = files.listing("", ".txt")
    assert before.keys() == after.keys() == {"f.txt"}
    assert before != after
    again = pickle.loads(pickle.dumps(files))
    assert again.listing("", ".txt") == after


WRITER = """
import sys
from storage.s3 import S3Files

files = S3Files(sys.argv[1])
n = 0
while True:
    files.write("object", bytes([n % 256]) * (6 << 20))
    print(n, flush=True)
    n += 1
"""


def test_an_object_is_complete_or_absent_when_its_writer_is_killed(files: S3Files) -> None:
    drawn = random.Random(5)
    for _ in range(4):
        files.remove("object")
        process = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(WRITER), files.root],
            stdout=subprocess.PIPE,
            cwd=Path(__file__).parents[2],
        )
        assert process.stdout is not None
        for _ in range(drawn.randint(0, 2)):
            process.stdout.readline()
        time.sleep(drawn.random() / 10)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        if files.size("object") is not None:
            data = files.read("object")
            assert len(data) == 6 << 20
            assert len(set(data)) == 1


def test_of_many_that_want_a_lock_one_gets_it(bucket: Bucket) -> None:
    run = new_run(bucket.url("run"))
    taken: list[str] = []
    refused: list[UsageError] = []
    together, release = threading.Barrier(8), threading.Event()

    def want() -> None:
        together.wait()
        try:
            with run.lock():
                taken.append("mine")
                release.wait(30)
        except UsageError as error:
            refused.append(error)

    threads = [threading.Thread(target=want) for _ in range(8)]
    for thread in threads:
        thread.start()
    while len(refused) < 7:
        time.sleep(0.01)
    release.set()
    for thread in threads:
        thread.join()
    assert taken == ["mine"]
    assert f"delete {run.location}/lock" in str(refused[0])
    with run.lock():
        pass


def test_a_dead_owners_lock_goes_to_one_of_those_that_find_it(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = new_run(bucket.url("run"))
    assert isinstance(run.files, S3Files)
    run.files.write("lock", b'{"host": "gone"')
    raw, tag = run.files.read_tagged("lock")
    assert run.files.replace("lock", b"first", tag)
    assert not run.files.replace("lock", b"second", tag)
    assert run.files.read("lock") == b"first" != raw
    with run.lock():
        assert lock.lock_owner(run.files) is not None
    assert lock.lock_owner(run.files) is None


def test_a_service_without_conditional_writes_is_locked_as_well_as_it_can_be(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = new_run(bucket.url("run"))
    client = s3._client()
    plain = client.put_object

    def without(**arguments: Any) -> Any:
        if "IfNoneMatch" in arguments or "IfMatch" in arguments:
            from botocore.exceptions import ClientError

            raise ClientError({"Error": {"Code": "NotImplemented"}}, "PutObject")
        return plain(**arguments)

    monkeypatch.setattr(client, "put_object", without)
    with run.lock(), pytest.raises(UsageError, match="is being written by process"), run.lock():
        pass
    assert lock.lock_owner(run.files) is None


def test_runs_are_listed_folder_by_folder(bucket: Bucket) -> None:
    for name in ("b", "a", "c d"):
        run = new_run(bucket.url(f"home/{name}"))
        run.commit(Unit("recover", "rag", "u"), "f", {"verdicts": [verdict("rag", "u", "c", "d")]})
    S3Files(bucket.url("home")).write("no_run/other.json", b"{}")
    found = RunStore.list(bucket.url("home"))
    assert [store.location for store in found] == [
        bucket.url(f"home/{n}") for n in ("a", "b", "c d")
    ]
    assert RunStore.list(bucket.url("nothing")) == []


@pytest.mark.parametrize(
    ("change", "kind", "match"),
    [
        ({"AWS_ENDPOINT_URL": "http://127.0.0.1:1"}, MissingPrerequisite, "AWS_ENDPOINT_URL"),
        (
            {"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": "", "AWS_EC2_METADATA_DISABLED": "1"}
            | {"AWS_SHARED_CREDENTIALS_FILE": "/none", "AWS_CONFIG_FILE": "/none"},
            MissingPrerequisite,
            "Set AWS_ACCESS_KEY_ID",
        ),
    ],
    ids=["no service", "no credentials"],
)
def test_what_is_missing_is_named(
    bucket: Bucket,
    monkeypatch: pytest.MonkeyPatch,
    change: dict[str, str],
    kind: type[Exception],
    match: str,
) -> None:
    for variable, value in change.items():
        monkeypatch.setenv(variable, value)
    for act in (RunStore.exists, RunStore.open, RunStore.list):
        with pytest.raises(kind, match=match) as caught:
            act(bucket.url("run"))
        assert SECRET not in str(caught.value)


def test_a_bucket_that_is_not_there_is_named(bucket: Bucket) -> None:
    with pytest.raises(MissingPrerequisite, match="no bucket 'no-such-bucket'"):
        new_run("s3://no-such-bucket/run")
    with pytest.raises(MissingPrerequisite, match="no bucket"):
        RunStore.list("s3://no-such-bucket/runs")


def test_a_url_with_a_password_is_refused_without_repeating_it() -> None:
    for bad in ("s3://key:hunter2@bucket/runs", "s3://key:hunter2@host:9000/bucket", "s3://"):
        with pytest.raises(UsageError, match="AWS_SECRET_ACCESS_KEY") as caught:
            open_files(bad)
        assert "hunter2" not in str(caught.value)


def test_a_missing_package_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_PROFILE", "one-that-no-client-was-made-for")
    monkeypatch.setitem(sys.modules, "boto3", None)
    with pytest.raises(MissingPrerequisite, match=r"pip install 'memprobe-audit\[s3\]'"):
        RunStore.exists("s3://bucket/run")


def test_an_outage_in_the_middle_is_a_storage_error(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = new_run(bucket.url("run"))

    def failing(**_: Any) -> Any:
        from botocore.exceptions import ClientError

        raise ClientError({"Error": {"Code": "SlowDown", "Message": "try later"}}, "PutObject")

    monkeypatch.setattr(s3._client(), "put_object", failing)
    unit = Unit("recover", "rag", "u")
    with pytest.raises(StorageError, match="try later"):
        run.commit(unit, "f", {"verdicts": [verdict("rag", "u", "c", "d")]})
    monkeypatch.undo()
    for variable, value in bucket.env.items():
        monkeypatch.setenv(variable, value)
    assert not run.is_complete(unit, "f")
