"""What `suite validate` says of an evolution suite."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from flows.cli.output import emit_json, note, plain, table

if TYPE_CHECKING:
    from memprobe.evolution.checks import Validation
    from memprobe.evolution.suite import Composition


def validate(folder: Path, plan: str | None, json_output: bool) -> tuple[int, int]:
    """Check a folder of trajectories and print what was found; gives errors and warnings."""
    from memprobe.evolution.checks import inspect_suite
    from memprobe.evolution.suite import composition, suite_digest

    found = inspect_suite(folder, plan)
    digest = suite_digest(found.trajectories)
    made_of = composition(found.trajectories)
    errors, warnings = found.count("error"), found.count("warning")
    if json_output:
        emit_json(
            {
                "suite": folder.name,
                "kind": "evolution",
                "plan": found.plan,
                "digest": digest,
                "trajectories": made_of.trajectories,
                "state_documents": made_of.state_documents,
                "noise_documents": made_of.noise_documents,
                "errors": errors,
                "warnings": warnings,
                "composition": [asdict(row) | {"n": row.n} for row in made_of.rows],
                "domains": made_of.domains,
                "types": made_of.types,
                "actions": made_of.actions,
                "final_claims": made_of.final_claims,
                "questions": made_of.questions,
                "problems": [asdict(problem) for problem in found.problems],
            }
        )
    else:
        _print(found, made_of)
        print(f"sha256 {digest}")
    return errors, warnings


def _print(found: Validation, made_of: Composition) -> None:
    levels = [str(level) for level in made_of.rows[0].levels] if made_of.rows else []
    table(
        ["category", *levels, "n", "documents", "noise"],
        [
            [r.category, *r.levels.values(), r.n, r.state_documents, r.noise_documents]
            for r in made_of.rows
        ],
    )
    for what, counts in (
        ("domains", made_of.domains),
        ("trajectory types", made_of.types),
        ("actions", made_of.actions),
    ):
        print(f"{what}: {', '.join(f'{name} {n}' for name, n in counts.items() if n)}")
    print(f"{made_of.final_claims} claims at the end, {made_of.questions} questions")
    for p in found.problems:
        where = p.trajectory if p.state is None else f"{p.trajectory} state {p.state}"
        note(plain(f"{p.severity}: {where}: {p.rule}: {p.message}; {p.fix}"))
    documents = made_of.state_documents + made_of.noise_documents
    print(
        f"{made_of.trajectories} trajectories, {documents} documents "
        f"({made_of.state_documents} of states, {made_of.noise_documents} of noise), "
        f"held to {found.plan or 'no plan'}: {found.count('error')} errors, "
        f"{found.count('warning')} warnings"
    )
