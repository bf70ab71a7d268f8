"""Archives built to do harm, damaged ones, and those of a newer version."""

from __future__ import annotations

import json
import stat
import struct
import zipfile
from pathlib import Path

import pytest

from memprobe.errors import MissingPrerequisite, UsageError
from storage import bundles
from storage.runs import RunStore
from tasks.bundle import write_bundle
from tasks.verify import verify_bundle
from tests.bundles.support import Files, adapt_list, find, pack, unpack
from tests.report.make_run import make_run


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hostile")
    run: RunStore = make_run(folder / "made", users=1, systems=("rag",))
    write_bundle(run, folder / "made.zip")
    return folder / "made.zip"


@pytest.fixture
def files(bundle: Path) -> Files:
    return unpack(bundle)


@pytest.mark.parametrize(
    "name",
    [
        "../evil", "artifacts/../../evil", "/tmp/evil", "artifacts\\..\\evil", "C:/evil",
        "artifacts//evil", "evil", "artifacts/./x", "artifacts", "report/index.html",
    ],
)  # fmt: skip
def test_names_that_climb_are_refused(files: Files, tmp_path: Path, name: str) -> None:
    path = pack(tmp_path / "x.zip", {**files, name: b"x"})
    with pytest.raises(UsageError, match="cannot be in a bundle; nothing was read"):
        verify_bundle(path)
    assert [p.name for p in tmp_path.iterdir()] == ["x.zip"]


@pytest.mark.parametrize("name", ["../evil", "/etc/passwd", "bundle.json", "x"])
def test_a_list_that_names_files_elsewhere_is_refused(
    files: Files, tmp_path: Path, name: str
) -> None:
    value = json.loads(files["bundle.json"])
    value["files"][name] = {"bytes": 1, "sha256": "0" * 64}
    files["bundle.json"] = json.dumps(value).encode()
    with pytest.raises(UsageError, match="cannot be in a bundle"):
        verify_bundle(pack(tmp_path / "x.zip", files))
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "bundle.json").write_bytes(files["bundle.json"])
    with pytest.raises(UsageError, match="cannot be in a bundle"):
        verify_bundle(folder)


def test_links_are_refused(files: Files, tmp_path: Path) -> None:
    path = pack(tmp_path / "x.zip", files)
    with zipfile.ZipFile(path, "a") as archive:
        link = zipfile.ZipInfo("artifacts/link")
        link.create_system = 3
        link.external_attr = (stat.S_IFLNK | 0o777) << 16
        archive.writestr(link, "/etc/passwd")
    with pytest.raises(UsageError, match="cannot be in a bundle"):
        verify_bundle(path)
    folder = tmp_path / "folder"
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    assert verify_bundle(folder).ok
    name = find(files, "turns")
    (folder / name).unlink()
    (folder / name).symlink_to("/etc/passwd")
    (folder / "artifacts" / "away").symlink_to(tmp_path, target_is_directory=True)
    found = verify_bundle(folder).problems
    assert f"{name}: no regular file" in found
    assert "artifacts/away: no regular file" in found


def test_a_name_twice_is_refused(files: Files, tmp_path: Path) -> None:
    path = pack(tmp_path / "x.zip", files)
    with zipfile.ZipFile(path, "a") as archive:
        folder, _, name = find(files, "turns").rpartition("/")
        archive.writestr(f"{folder}/{name.upper()}", b"x")
    with pytest.raises(UsageError, match="twice"):
        verify_bundle(path)


def test_a_bomb_is_not_unpacked(
    files: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = pack(tmp_path / "x.zip", files)
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("artifacts/turns/bomb.parquet", b"\0" * (64 << 20))
    assert path.stat().st_size < 4 << 20
    with pytest.raises(UsageError, match="unpack to too much; nothing was read"):
        verify_bundle(path)
    plain = pack(tmp_path / "y.zip", files)
    for name, limit in (("MAX_FILE", 100), ("MAX_TOTAL", 1000)):
        with monkeypatch.context() as patched:
            patched.setattr(bundles, name, limit)
            with pytest.raises(UsageError, match="too much"):
                verify_bundle(plain)
    monkeypatch.setattr(bundles, "MAX_FILES", 3)
    with pytest.raises(UsageError, match="more than any bundle"):
        verify_bundle(plain)


def test_an_entry_that_is_larger_than_it_says_is_cut_off(files: Files, tmp_path: Path) -> None:
    name = find(files, "turns")
    path = tmp_path / "x.zip"
    adapt_list(files)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for one, data in files.items():
            archive.writestr(one, data + b"\0" * 100_000 if one == name else data)
    raw = path.read_bytes()
    long, short = len(files[name]) + 100_000, len(files[name])
    assert raw.count(struct.pack("<I", long)) == 2
    path.write_bytes(raw.replace(struct.pack("<I", long), struct.pack("<I", short)))
    found = verify_bundle(path).problems
    assert any(line.startswith(name) for line in found)


def test_a_damaged_archive_is_said(bundle: Path, tmp_path: Path) -> None:
    raw = bundle.read_bytes()
    for number, data in enumerate((b"", b"PK", raw[: len(raw) // 2], b"x" * 1000)):
        path = tmp_path / f"{number}.zip"
        path.write_bytes(data)
        with pytest.raises(UsageError, match="no zip file that can be read"):
            verify_bundle(path)
    spot = bytearray(raw)
    with zipfile.ZipFile(bundle) as archive:
        largest = max(archive.infolist(), key=lambda info: info.compress_size)
    # Within a file's bytes: a date of the archive's own bookkeeping is nobody's evidence.
    spot[largest.header_offset + 30 + len(largest.filename) + largest.compress_size // 2] ^= 0xFF
    (tmp_path / "bit.zip").write_bytes(spot)
    assert not verify_bundle(tmp_path / "bit.zip").ok


@pytest.mark.parametrize("field", ["version", "schema_version"])
@pytest.mark.parametrize("value", [2, 99, "2", None])
def test_a_newer_version_is_refused(
    files: Files, tmp_path: Path, field: str, value: object
) -> None:
    facts = json.loads(files["bundle.json"])
    facts[field] = value
    facts["versions"]["memprobe"] = "9.8.7"
    files["bundle.json"] = json.dumps(facts).encode()
    with pytest.raises(MissingPrerequisite, match=r"newer MemProbe \('9\.8\.7'\)"):
        verify_bundle(pack(tmp_path / "x.zip", files))


@pytest.mark.parametrize(
    "raw", [b"", b"[]", b"{}", b'{"format": "memprobe-bundle"', b"[" * 200_000, b"\xff"]
)
def test_a_list_that_cannot_be_read_is_said(files: Files, tmp_path: Path, raw: bytes) -> None:
    files["bundle.json"] = raw
    with pytest.raises(UsageError, match=r"cannot be read|no bundle"):
        verify_bundle(pack(tmp_path / "x.zip", files))


def test_other_zips_and_folders_are_no_bundles(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"bundle\.json is missing"):
        verify_bundle(pack(tmp_path / "x.zip", {"artifacts/x": b"x"}))
    with pytest.raises(UsageError, match=r"bundle\.json is missing"):
        verify_bundle(tmp_path)
    with pytest.raises(UsageError, match="no bundle at"):
        verify_bundle(tmp_path / "nothing")


def test_what_is_damaged_inside_is_named_and_ends_nothing(files: Files, tmp_path: Path) -> None:
    files["rows.jsonl"] = b'{"table": "other", "key": 1}\n'
    files["manifest.json"] = b"{"
    unit = next(name for name in files if name.startswith("units/"))
    files[unit] = b"[]"
    files["artifacts/nothing/part.parquet"] = b"x"
    files[find(files, "turns")] = files[find(files, "episodes")]
    adapt_list(files)
    result = verify_bundle(pack(tmp_path / "x.zip", files))
    assert (
        result.notes[0] == "artifacts/nothing/part.parquet: a table that this version does not know"
    )
    found = result.problems
    for name in (
        "rows.jsonl: line 1",
        "manifest.json:",
        f"{unit}: cannot be read",
        "other columns than table turns",
    ):
        assert any(name in line for line in found), name
