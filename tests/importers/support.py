"""What the importer's tests ask again and again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from storage.importers.rebuild import rebuild
from storage.importers.recovery_release import Imported, import_release
from storage.runs import RunStore


def imported(
    root: Path, where: Path, wanted: int | tuple[str, ...] | None = None
) -> tuple[RunStore, Imported]:
    """Import into a new run."""
    found = import_release(root, str(where), where.name, wanted, lambda *_: None)
    return RunStore.open(where), found


def problems(found: Imported, severity: str | None = None) -> list[str]:
    """The issues as `path | field | problem`."""
    return [
        f"{i['path']} | {i['field']} | {i['problem']}"
        for i in found.issues
        if severity in (None, i["severity"])
    ]


def assert_nothing_lost(run: RunStore, root: Path) -> None:
    """Every JSON file of the release comes out of the run as the same bytes."""
    files = {file.path: file for file in rebuild(run)}
    there = {str(p.relative_to(root)): p for p in root.rglob("*.json") if p.is_file()}
    assert files.keys() == there.keys()
    for path, file in files.items():
        assert file.data == there[path].read_bytes(), path


def rows(run: RunStore, table: str, **where: Any) -> list[dict[str, Any]]:
    """Rows of a table with these values."""
    return [r for r in run.read(table) if all(r[k] == v for k, v in where.items())]
