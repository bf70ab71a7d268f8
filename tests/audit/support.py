"""Filling in sheets as a rater would."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from storage.runs import RunStore
from tasks.audit import Sheet, write_sheet

Filled = dict[str, str]
Fill = Callable[[dict[str, Any]], Filled]


def key_of(store: RunStore, sheet: Sheet) -> dict[str, dict[str, Any]]:
    """The key's items by id."""
    raw = store.files.read(f"audits/{sheet.sheet}/audit_key.json")
    return {item["id"]: item for item in json.loads(raw)["items"]}


def made(store: RunStore, folder: Path, **more: Any) -> Sheet:
    return write_sheet(store, folder, **{"sample": 40, **more})


def read_csv(path: Path) -> list[dict[str, str]]:
    text = path.read_bytes().decode("utf-8-sig")
    return list(csv.DictReader(io.StringIO(text, newline="")))


def save_csv(path: Path, rows: list[Mapping[str, str]], separator: str = ",") -> Path:
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, list(rows[0]), delimiter=separator)
    writer.writeheader()
    writer.writerows(rows)
    path.write_text(buffer.getvalue(), encoding="utf-8", newline="")
    return path


def agreeing(item: dict[str, Any]) -> Filled:
    """What a rater says who agrees with judge and attribution."""
    low = item["score"] < 0.75
    return {"score": f"{item['score']:g}", "cause": item["attribution"] if low else ""}


def fill(store: RunStore, sheet: Sheet, target: Path, answers: Fill = agreeing) -> Path:
    """A copy of the sheet with answers."""
    key = key_of(store, sheet)
    rows = [{**row, **answers(key[row["id"]])} for row in read_csv(Path(sheet.csv))]
    return save_csv(target, rows)


def change(path: Path, number: int, **cells: str) -> None:
    """Set cells of one row (from 0)."""
    rows = read_csv(path)
    rows[number].update(cells)
    save_csv(path, rows)  # type: ignore[arg-type]
