"""The public release itself, where it is at hand: `MEMPROBE_RELEASE`, or beside the repository."""

from __future__ import annotations

import os
import shutil
import subprocess
import tarfile
import time
from pathlib import Path

import pytest

from storage.importers import layout
from storage.runs import RunStore
from tasks import paper_tables
from tasks.paper_figures import paper_figures
from tests.importers.support import assert_nothing_lost, imported, problems, rows

ROOT = Path(__file__).parents[2]


def _folder() -> Path | None:
    named = os.environ.get("MEMPROBE_RELEASE")
    candidates = [Path(named)] if named else []
    candidates += [ROOT / "shared" / "release", ROOT.parent / "shared" / "release"]
    return next((c for c in candidates if c.is_dir()), None)


FOLDER = _folder()
pytestmark = pytest.mark.skipif(FOLDER is None, reason="the public release is not at hand")


def unpacked(archive: str, target: Path) -> Path:
    """An archive of the release, unpacked; skips where nothing can read zstd."""
    assert FOLDER is not None
    path = FOLDER / archive
    if not path.is_file():
        pytest.skip(f"{archive} is not in the release's folder")
    if shutil.which("zstd"):
        command = ["zstd", "-d", "--long=27", "-c", str(path)]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            with tarfile.open(fileobj=process.stdout, mode="r|") as tar:
                tar.extractall(target, filter="data")
        return target
    zstandard = pytest.importorskip("zstandard", reason="neither zstd nor zstandard is installed")
    with path.open("rb") as raw:
        reader = zstandard.ZstdDecompressor(max_window_size=2**27).stream_reader(raw)
        with tarfile.open(fileobj=reader, mode="r|") as tar:
            tar.extractall(target, filter="data")
    return target


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpacked("release_users_001_003.tar.zst", tmp_path_factory.mktemp("three"))


def test_three_users_lose_nothing(three: Path, tmp_path: Path) -> None:
    run, found = imported(three, tmp_path / "pub")
    assert problems(found) == []
    assert (len(found.users), len(found.systems)) == (3, 5)
    assert found.rows["verdicts"] == 3 * 31 * 9
    assert found.rows["preference_scores"] == 6045
    assert_nothing_lost(run, layout.find_root(three))
    # A turn's published mean is that of its single preferences.
    for score in run.read("turn_scores")[:200]:
        at = {k: score[k] for k in ("system", "user_id", "episode", "turn")}
        single = [r["score"] for r in rows(run, "preference_scores", **at) if r["score"]]
        assert score["score"] == pytest.approx(sum(single) / len(single))


def test_damage_in_three_users(three: Path, tmp_path: Path) -> None:
    whole, _ = imported(three, tmp_path / "whole")
    copy = tmp_path / "copy"
    shutil.copytree(three, copy)
    root = layout.find_root(copy)
    truncated = root / "output/mem0_pooled_50/attribution/user_001.json"
    truncated.write_bytes(truncated.read_bytes()[:9000])
    empty = root / "memory/amem_pooled_50/user_002/memories.json"
    empty.write_bytes(b"")
    renamed = root / "output/memt_memonly_pooled_50/recon_judge/user_003.json"
    renamed.rename(renamed.with_name("third.json"))
    run, found = imported(copy, tmp_path / "pub")
    lines = "\n".join(problems(found))
    for path in (truncated, empty, renamed.with_name("third.json")):
        assert str(path.relative_to(root)) in lines
    assert run.read("verdicts") == whole.read("verdicts")
    assert run.read("turns") == whole.read("turns")
    assert rows(run, "memory_items", system="amem", user_id="user_002") == []
    spoiled = {"system": "mem0", "user_id": "user_001", "access_mode": "dump_all"}
    kept = [r for r in whole.read("attributions") if any(r[k] != v for k, v in spoiled.items())]
    assert [r for r in run.read("attributions") if r["label"] != "harness_failure"] == kept


@pytest.mark.heavy
@pytest.mark.timeout(900)
def test_forty_users_reproduce_every_expected_value(tmp_path: Path) -> None:
    assert FOLDER is not None
    source = unpacked("release_users_001_040.tar.zst", tmp_path / "forty")
    run, found = imported(source, tmp_path / "pub")
    assert found.lost == 0
    begun = time.perf_counter()
    figures = paper_figures(RunStore.open(run.location))
    print(f"tables: {time.perf_counter() - begun:.2f} s")
    expected = paper_tables.read_expected(FOLDER / "expected_users_001_040.json")
    compared = paper_tables.compare(figures, expected)
    assert compared.differences == ()
    assert compared.compared == 368
    assert len(rows(run, "verdicts", reason="store_overflow")) % 31 == 0
    assert_nothing_lost(run, layout.find_root(source))
