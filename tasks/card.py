"""Write a data set's card: `python -m tasks.card [FOLDER]` (default: the bundled users)."""

from __future__ import annotations

import sys
from pathlib import Path

from memprobe.card import build_card, render_card
from memprobe.dataset import load_dataset
from storage.bundled import recovery_dir
from storage.files import LocalFiles


def write_card(folder: Path) -> str:
    """Write `CARD.md` and `card.json` into a data set's folder; returns its digest."""
    card = build_card(load_dataset(folder))
    files = LocalFiles(folder)
    files.write("card.json", f"{card.model_dump_json(indent=1)}\n".encode())
    files.write("CARD.md", render_card(card, folder.resolve().name).encode())
    return card.digest


if __name__ == "__main__":
    print(write_card(Path(sys.argv[1]) if len(sys.argv) > 1 else recovery_dir()))
