"""The `memprobe` command."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

PACKAGES = ("memprobe", "prompts", "storage", "adapters", "tasks", "flows")


def shadowed() -> list[str]:
    """Packages of ours that Python would import from somewhere else, as messages.

    Our top-level names are plain words; a folder or file of that name on
    PYTHONPATH, or in the current folder, would be imported in our place.
    """
    home = Path(__file__).resolve().parents[2]
    found = []
    for name in PACKAGES:
        spec = importlib.util.find_spec(name)
        places = [spec.origin] if spec and spec.origin else list(_locations(spec))
        if not any(Path(place).resolve().is_relative_to(home / name) for place in places):
            where = places[0] if places else "nowhere"
            found.append(f"package {name!r} is found at {where} instead of {home / name}")
    return found


def _locations(spec: object) -> list[str]:
    return list(getattr(spec, "submodule_search_locations", None) or ())


def main() -> None:
    """Run the command line; the entry point of `memprobe`."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="replace")
    wrong = shadowed()
    if wrong:
        lines = "\n  ".join(wrong)
        print(
            f"memprobe: another package stands in front of ours:\n  {lines}\n"
            "Start memprobe from another folder, take that place out of PYTHONPATH, or rename it.",
            file=sys.stderr,
        )
        raise SystemExit(2)
    from flows.cli.app import app

    app(prog_name="memprobe")
