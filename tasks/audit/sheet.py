"""The blind sheet: a CSV and a form for raters, and the key that stays with the run.

Neither file names a system, a verdict, an attribution or a stratum. The key
(`audits/<sheet>/audit_key.json` in the run) is all that leads from an item's id
back to its judgement.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from memprobe.errors import StorageError, UsageError
from storage.files import LocalFiles
from storage.runs import RunStore
from tasks.audit import sampling
from tasks.audit.form import form_page
from tasks.audit.sampling import Allocation, By, Candidate, Stratum
from tasks.audit.words import ASKED, COLUMNS, QUESTION, cell, settled
from tasks.score import BASE

VERSION = 1
FOLDER = "audits"
KEY = "audit_key.json"
CSV, FORM = "sheet.csv", "form.html"


@dataclass(frozen=True, slots=True)
class Sheet:
    """A sheet that was written; `left_out` verdicts could not be audited."""

    sheet: str
    run: str
    layer: str
    stratify: str
    allocation: str
    seed: int
    items: int
    left_out: int
    strata: tuple[Stratum, ...]
    csv: str
    form: str
    key: str


def key_path(sheet: str) -> str:
    """Where a sheet's key lies, relative to the run."""
    return f"{FOLDER}/{sheet}/{KEY}"


def cells_of(texts: dict[str, str]) -> dict[str, str]:
    """An item's texts as they stand in the CSV."""
    return {name: cell(texts[name]) for name in ASKED}


def text_hash(cells: dict[str, str]) -> dict[str, str]:
    """A hash of each text of an item, the same for what a spreadsheet program saves unedited."""
    return {
        name: hashlib.sha256(settled(text).encode("utf-8")).hexdigest()[:16]
        for name, text in cells.items()
    }


def write_sheet(
    store: RunStore,
    folder: Path,
    *,
    sample: int,
    by: By = "attribution",
    how: Allocation = "equal",
    layer: str = BASE,
    seed: int | None = None,
) -> Sheet:
    """Draw a sample of a run's judgements and write sheet, form and key.

    The same arguments and run give the same bytes. Raises `UsageError` where there is
    nothing to draw from, and rather than writing over a file that raters may have filled.
    """
    stored = store.manifest.stored_layer(layer)
    seed = store.manifest.config.seed if seed is None else seed
    drawn = sampling.draw(store, stored, sample, by, how, seed)
    texts = [{**found, "question": QUESTION} for found in sampling.evidence(store, drawn)]
    cells = [cells_of(text) for text in texts]
    named = json.dumps([cells, [asdict(c) for c, _ in drawn.items]], sort_keys=True)
    sheet = hashlib.sha256(named.encode("utf-8")).hexdigest()[:8]
    ids = [f"{sheet}-{number:03d}" for number in range(1, len(cells) + 1)]
    files = {
        CSV: _csv(ids, cells),
        FORM: form_page(sheet, ids, texts).encode("utf-8"),
    }
    key = {
        "format": "memprobe-audit-key",
        "version": VERSION,
        "sheet": sheet,
        "layer": stored,
        "stratify": by,
        "allocation": how,
        "sample": sample,
        "seed": seed,
        "dataset_digest": store.manifest.dataset_digest,
        "left_out": drawn.left_out,
        "strata": [asdict(stratum) for stratum in drawn.strata],
        "items": [
            _keyed(item_id, candidate, stratum, drawn.strata, text)
            for item_id, (candidate, stratum), text in zip(ids, drawn.items, cells, strict=True)
        ],
    }
    _write(folder, files)
    raw = (json.dumps(key, ensure_ascii=False, indent=1) + "\n").encode("utf-8")
    store.files.write(key_path(sheet), raw)
    return Sheet(
        sheet=sheet,
        run=store.name,
        layer=stored,
        stratify=by,
        allocation=how,
        seed=seed,
        items=len(ids),
        left_out=drawn.left_out,
        strata=drawn.strata,
        csv=str(folder / CSV),
        form=str(folder / FORM),
        key=f"{store.location}/{key_path(sheet)}",
    )


def _keyed(
    item_id: str,
    item: Candidate,
    stratum: str,
    strata: tuple[Stratum, ...],
    cells: dict[str, str],
) -> dict[str, Any]:
    facts = asdict(item)
    facts["label_sha256"] = hashlib.sha256(facts.pop("label").encode("utf-8")).hexdigest()
    size = next(s for s in strata if s.name == stratum)
    weight = size.population / size.sampled
    return {"id": item_id, "stratum": stratum, "weight": weight, **facts, "texts": text_hash(cells)}


def _csv(ids: list[str], cells: list[dict[str, str]]) -> bytes:
    buffer = io.StringIO()
    writer = csv.writer(buffer, quoting=csv.QUOTE_ALL, lineterminator="\r\n")
    writer.writerow(COLUMNS)
    for item_id, row in zip(ids, cells, strict=True):
        writer.writerow([item_id, *(row[name] for name in ASKED), "", "", "", ""])
    # The mark tells a spreadsheet program that this is UTF-8.
    return b"\xef\xbb\xbf" + buffer.getvalue().encode("utf-8")


def _write(folder: Path, files: dict[str, bytes]) -> None:
    target = LocalFiles(folder)
    for name, data in files.items():
        if target.size(name) is not None and target.read(name) != data:
            raise UsageError(
                f"{folder / name} is there with other content, perhaps filled in; choose "
                "another --out"
            )
    try:
        for name, data in files.items():
            target.write(name, data)
    except OSError as error:
        raise StorageError(f"{folder} cannot be written: {error}") from error


def read_key(store: RunStore, sheet: str) -> dict[str, Any] | None:
    """A sheet's key; None when the run made no such sheet. Raises `StorageError` if damaged."""
    path = key_path(sheet)
    try:
        key = json.loads(store.files.read(path))
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise StorageError(f"{store.location}/{path} cannot be read: {error}") from error
    if not isinstance(key, dict) or key.get("version") != VERSION:
        raise StorageError(f"{store.location}/{path} is no key that this version reads")
    return key
