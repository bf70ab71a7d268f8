"""Encodings a distinct text and a user: each text is encoded once, ever.

    python -m benchmarks.bench_encodes [--users 2] [--limit 31]

An embedded run of all three systems, then the same once more from the stored
vectors with everything measured again under another name. Ratio: encodings over
distinct texts, which must be 1; the second run must encode nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from pathlib import Path
from typing import Any

from benchmarks import common

SYSTEMS = ("nomem", "longctx_full", "rag")


async def one_run(
    folder: Path, name: str, users: int, limit: int | None
) -> tuple[int, set[str], int]:
    """Encodings, digests of the texts that were asked for, and new calls of one run."""
    from adapters.models.minilm import text_digest
    from flows import runtime
    from memprobe.config import RunConfig
    from memprobe.text import sanitize

    config = RunConfig(name=name, users=users, systems=SYSTEMS, limit=limit)
    async with runtime.opened(config, common.places(folder)) as run:
        asked: set[str] = set()
        rows = run.embedder.rows

        async def counted(texts: Any) -> Any:
            asked.update(text_digest(sanitize(text)[0]) for text in texts)
            return await rows(texts)

        run.embedder.rows = counted  # type: ignore[method-assign]
        await common.conduct_plainly(run)
        return run.embedder.encoded, asked, run.gateway.new_calls


def measure(folder: Path, users: int, limit: int | None) -> dict[str, Any]:
    """The first run, and the same over the vectors and answers that it left."""
    encoded, asked, calls = common.run_async(one_run(folder, "first", users, limit))
    again, _, new_calls = common.run_async(one_run(folder, "second", users, limit))
    return {
        "users": users,
        "systems": SYSTEMS,
        "distinct_texts": len(asked),
        "encoded": encoded,
        "encoded_per_user": round(encoded / users, 1),
        "ratio": round(encoded / len(asked), 4),
        "encoded_again": again,
        "calls": calls,
        "new_calls_again": new_calls,
        "target": 1.0,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--users", type=int, default=2)
    parser.add_argument("--limit", type=int, help="tasks a user")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    os.environ.setdefault("PREFECT_LOGGING_LEVEL", "ERROR")
    with tempfile.TemporaryDirectory() as folder:
        found = measure(Path(folder), given.users, given.limit)
    print(json.dumps(common.record("encodes", found, given.out)))


if __name__ == "__main__":
    main()
