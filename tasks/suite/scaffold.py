"""The files a suite of one's own begins with: a domain and mini-specs that build as they are."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from memprobe.errors import UsageError
from memprobe.paradigms.expand import DomainConfig, FactType, MiniSpec
from memprobe.paradigms.protocol import RULES
from memprobe.paradigms.spec import Condition, Domain
from storage.files import LocalFiles
from tasks.suite.inputs import expand_all

DOMAIN_FILE, MINISPEC_FILE = "domain.json", "minispecs.json"
PAIR = (Condition.AUTHORITATIVE_UPDATE, Condition.DECOY_NO_UPDATE)
_FACT = "meeting_place"


def domain_config(domain: Domain) -> DomainConfig:
    """A domain with one kind of fact, to be replaced."""
    name = domain.replace("_", " ").replace("-", " ")
    fact = FactType(
        readable="regular meeting place",
        encoding_contexts=(
            "asks for a reminder before the next meeting there",
            "wants directions for a guest who joins for the first time",
            "checks whether there is room for two more chairs",
            "plans what to bring along",
        ),
        distractor_values_pool=("Cedar Room", "Dogwood Studio", "Elm Court", "Fir Lodge"),
    )
    return DomainConfig(
        domain=domain,
        description=f"Everyday talk of a person about {name}, with an assistant that helps.",
        style="Short and plain, first person, no jargon that a friend would not follow.",
        fact_types={_FACT: fact},
    )


def minispec(number: int, condition: Condition, domain: Domain, design: str) -> MiniSpec:
    """A mini-spec of a condition; what an update needs beyond the values is there."""
    rule = RULES[condition]
    update: dict[str, Any] = {}
    if rule.status is None:
        update = {
            "trigger": "the heating of the old house broke down for the winter",
            "reason": "the new hall is warm and free on weekday evenings",
            "source_of_change": "the user said so while asking for help with the next meeting",
        }
    return MiniSpec(
        episode_id=f"{rule.paradigm.value[:3]}_01{chr(ord('a') + number)}",
        paradigm=rule.paradigm,
        condition=condition,
        domain=domain,
        fact_type=_FACT,
        initial_value="Alder House",
        new_value="Birch Hall",
        group_id="01",
        group_design=design,
        **update,
    )


def write_scaffold(
    out: Path, domain: Domain, conditions: Sequence[Condition] = PAIR
) -> tuple[Path, Path]:
    """Write the two files into a folder, made when missing; gives their paths.

    Raises `UsageError` when one of them is there, or a condition is named twice.
    """
    if len(set(conditions)) != len(conditions):
        raise UsageError("--conditions: a condition is named twice")
    if len(conditions) > 26:
        raise UsageError("--conditions: 26 at most")
    files = LocalFiles(out)
    for name in (DOMAIN_FILE, MINISPEC_FILE):
        if files.size(name) is not None:
            raise UsageError(f"{out / name} is there already and is kept; choose another folder")
    config = domain_config(domain)
    design = {2: "paired", 3: "triplet", 4: "quad"}.get(len(conditions), "standalone")
    minis = [minispec(i, c, domain, design) for i, c in enumerate(conditions)]
    expand_all(minis, config)
    files.write(DOMAIN_FILE, _text(config.model_dump(mode="json")))
    listed = [mini.model_dump(mode="json", exclude_defaults=True) for mini in minis]
    files.write(MINISPEC_FILE, _text({"minispecs": listed}))
    return out / DOMAIN_FILE, out / MINISPEC_FILE


def _text(value: Any) -> bytes:
    return f"{json.dumps(value, ensure_ascii=False, indent=1)}\n".encode()
