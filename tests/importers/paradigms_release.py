"""A small suite in the public paradigms layout: our own texts in the published shape.

Verdicts are written down by hand from the published rules, not made by our scorer.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.importers.release import write

Doc = dict[str, Any]
OLD, NEW, OTHERS = "Harrow Baths", "Quayside Pool", ["Linden Centre", "Northgate Lido", "Ferris"]
LABEL = "third_party_mention_of_Quayside_Pool_by_Dov"
TRIGGER, REASON = "sauna closed for repairs", "warmer water"
IDS = ("PILOT-01A", "PILOT-01B", "PILOT-14A", "PILOT-02B")
REPORT = "results/suite9/reports/baselines_report_ALL_gemini.json"
EPISODES, SPECS = "data/suite9/episodes.jsonl", "data/suite9/latent_specs.json"


def _spec(name: str, paradigm: str, condition: str, *, split: bool = False) -> Doc:
    updates = condition in ("authoritative_update", "user_explicit")
    source = {"assistant_noise": "assistant_hallucination"}.get(condition, "third_party")
    probes = {
        "authoritative_update": ["current_value", "previous_value", "change_detection", "temporal"],
        "decoy_no_update": ["current_value", "conflict_value", "change_detection", "source"],
        "user_explicit": ["current_value", "previous_value", "temporal", "change_detection"],
        "assistant_noise": ["current_value", "conflict_value", "source", "change_detection"],
    }[condition]
    gold: Doc = {
        "current_value": NEW if updates else OLD,
        "original_value": OLD,
        "previous_value": OLD if updates else None,
        "has_changed": updates,
        "source_of_change": "user explicitly stated the switch" if updates else None,
        "invalid_sources": [] if updates else [LABEL],
    }
    if split:
        gold["temporal_gold"] = {
            "changed": True, "order": f"{OLD} then {NEW}", "trigger": TRIGGER, "reason": REASON,
            "old_value": OLD, "new_value": NEW, "exact_time_required": False,
        }  # fmt: skip
    if not updates:
        gold["conflict_gold"] = {
            "conflict_value": NEW, "mentioned": True, "source": source, "source_label": LABEL,
            "status": "different_entity" if condition == "decoy_no_update" else "not_accepted",
            "applies_to_target": False, "target_remains": OLD,
        }  # fmt: skip
    return {
        "episode_id": name, "group_id": f"GRP-{name[-3:-1]}", "group_role": "update",
        "matched_variables": ["fact_type"], "variant_variables": ["perturbation"],
        "paradigm": paradigm, "condition": condition, "domain": "personal",
        "fact_type": "swimming_pool", "length_tier": "core",
        "initial_value": f"user swims at {OLD}", "new_value": f"switched to {NEW}",
        "canonical_initial": OLD, "canonical_new": NEW, "distractor_values": OTHERS,
        "expected_behavior": "should_update" if updates else "should_preserve",
        "encoding": {"support_count": 1, "mention_contexts": ["user plans a swim"]},
        "perturbation": {
            "source_type": "user_explicit" if updates else source,
            "evidence_strength": "strong" if updates else "weak",
            "authoritative": updates, "reactivation": False, "wording_hint": "as it is said",
        },
        "num_post_perturbation_fillers": 2, "perturbation_type": "direct_update",
        "probes": [{"type": p, "question_hint": f"{p}?"} for p in probes], "gold": gold,
        "probe_types": probes, "base_fact_type": "swimming_pool", "difficulty_target": "core",
        "group_design": "paired", "generation_batch": "A",
        "split_perturbation": {"p1_hint": "p1"} if split else False,
        "num_perturbation_events": 1, "paradigm_metadata": {"update_type": "authoritative"},
    }  # fmt: skip


def gold_of(spec: Doc, probe: str) -> str:
    """A gold answer in the published wording."""
    if probe == "temporal" and "temporal_gold" in spec["gold"]:
        return f'Changed from "{OLD}" to "{NEW}". Trigger: {TRIGGER}. Reason: {REASON}.'
    change = f'Yes — changed from "{OLD}" to "{NEW}"'
    if not spec["gold"]["has_changed"]:
        change = f'No — it remains "{OLD}"'
    return {
        "current_value": spec["gold"]["current_value"],
        "previous_value": OLD,
        "change_detection": change,
        "temporal": "user explicitly stated the switch",
        "conflict_value": f'Yes — "{NEW}" was mentioned, but from an invalid source ({LABEL}). '
        f'The user\'s swimming pool remains "{OLD}".',
        "source": f"{NEW} was mentioned by a third party; the user did not confirm it.",
    }[probe]


def _session(kind: str, index: int, *said: str) -> Doc:
    dialogue = []
    for n, one in enumerate(said):
        dialogue.append({"role": "assistant" if n % 2 else "user", "content": one})
    meta = {"filler_idx": index} if kind.startswith("filler") else {"context_theme": "swim"}
    return {
        "session_type": kind, "session_idx": index, "dialogue": dialogue, "metadata": meta,
        "phase": "filler" if kind.startswith("filler") else "perturbation",
    }  # fmt: skip


def _episode(spec: Doc) -> Doc:
    split = bool(spec["split_perturbation"])
    kinds = ["encoding", "filler_weakly_related", "filler_near_miss"]
    kinds += ["perturbation_p1", "perturbation_p2"] if split else ["perturbation"]
    sessions = [
        _session(kind, i, f"{OLD if i == 0 else NEW}, session {i}: — “ü”?", "Noted.")
        for i, kind in enumerate(kinds)
    ]
    behaviour = spec["expected_behavior"]
    return {
        "episode_id": spec["episode_id"], "group_id": spec["group_id"],
        "paradigm": spec["paradigm"], "condition": spec["condition"],
        "expected_behavior": behaviour, "latent_spec": spec, "sessions": sessions,
        "probes": [
            {
                "probe_type": p["type"], "question": p["question_hint"],
                "gold_answer": gold_of(spec, p["type"]), "expected_behavior": behaviour,
            }
            for p in spec["probes"]
        ],
        "validation": {"errors": []},
    }  # fmt: skip


def _json(**fields: Any) -> str:
    return json.dumps(fields, ensure_ascii=False, indent=2)


def _right(spec: Doc, probe: str) -> tuple[str, str, str]:
    """A structured answer that is right, with the published verdict and reason."""
    updates = spec["gold"]["has_changed"]
    value = NEW if updates else OLD
    if probe in ("current_value", "previous_value"):
        said = _json(answer=OLD if probe == "previous_value" else value, reason="r")
        return said, "correct", "value present in answer"
    if probe == "change_detection":
        said = _json(changed=updates, current_value=value, previous_value=None, reason="r")
        return said, "correct", "structured: both agree"
    if probe == "temporal":
        said = _json(changed=True, trigger=f"the {TRIGGER}", old_value=OLD, new_value=NEW,
                     timing="in spring", reason="the user said so")  # fmt: skip
        return said, "correct", "temporal JSON checks passed"
    gold = spec["gold"]["conflict_gold"]
    source = {"assistant_hallucination": "assistant"}.get(gold["source"], gold["source"])
    if probe == "source":
        said = _json(source_description="d", source_class=source, action="mentioned",
                     accepted=False, current_value=OLD, reason="r")  # fmt: skip
        return said, "correct", f"source_class match: pred={source} gold={source}"
    status = {"different_entity": "other_entity"}.get(gold["status"], gold["status"])
    said = _json(conflict_value_mentioned=True, conflict_value=NEW, source="s",
                 source_class=source, status="s", status_class=status, applies_to_target=False,
                 current_value=OLD, reason="r")  # fmt: skip
    return said, "correct", "value=correct, source=correct, status=correct, applicability=correct"


def _answers(spec: Doc, **instead: tuple[str, str, str]) -> list[Doc]:
    rows = []
    for probe in spec["probe_types"]:
        said, match, reason = instead.get(probe) or _right(spec, probe)
        rows.append(
            {
                "probe_type": probe,
                "gold": gold_of(spec, probe),
                "predicted": said,
                "match": match,
                "reason": reason,
            }
        )
    return rows


WRONG_VALUE = (_json(answer=OLD, reason="r"), "incorrect", f"expected '{NEW}' not found")
NO_CHANGE = (
    _json(changed=False, trigger="the user says so", old_value="", new_value="", timing="",
          reason=""),
    "correct", "temporal legacy checks passed: {'source_agent': True, 'change_direction': True}",
)  # fmt: skip
"""Published as correct by the names of the fields alone."""
OTHER_VALUE = (
    _json(conflict_value_mentioned=True, conflict_value="Linden Centre", source="s",
          source_class="user", status="s", status_class="stale", applies_to_target=False,
          current_value=OLD, reason="r"),
    "partial", "value=correct, source=incorrect, status=incorrect, applicability=correct",
)  # fmt: skip
FAILED = ("[ERROR: AuthenticationError]", "execution_error", "execution error")


def specs() -> list[Doc]:
    """An update, a decoy, a split update, and an assistant's mistake."""
    return [
        _spec("PILOT-01A", "interference", "authoritative_update"),
        _spec("PILOT-01B", "interference", "decoy_no_update"),
        _spec("PILOT-14A", "misinformation", "user_explicit", split=True),
        _spec("PILOT-02B", "misinformation", "assistant_noise"),
    ]


def report() -> Doc:
    """Four systems in the shapes that reports have."""
    listed = specs()
    full = {s["episode_id"]: _answers(s) for s in listed}
    rag = {
        s["episode_id"]: [{**a, "retrieved_indices": [0, 2]} for a in _answers(s)] for s in listed
    }
    changes: list[dict[str, tuple[str, str, str]]] = [
        {"current_value": WRONG_VALUE, "temporal": NO_CHANGE},
        {"conflict_value": OTHER_VALUE},
        {},
        {"source": FAILED},
    ]
    mem0 = {
        s["episode_id"]: {
            "answers": _answers(s, **instead),
            "n_memories": 2, "ingest_time_sec": 139.1, "ingest_errors": 0,
            "sessions_fed": len(_episode(s)["sessions"]), "total_time_sec": 147.3,
        }
        for s, instead in zip(listed, changes, strict=True)
    }  # fmt: skip
    mem0["PILOT-02B"]["ingest_errors"] = 2
    for answer in mem0["PILOT-02B"]["answers"]:
        if answer["probe_type"] == "conflict_value":
            answer["conflict_sub_scores"] = {
                "value_identified": "correct", "source_identified": "correct",
                "status_classified": "incorrect", "target_applicability": "correct",
            }  # fmt: skip
    judge = {
        s["episode_id"]: {
            "answers": [{**a, "confidence": 1.0} for a in _answers(s)],
            "scores": ["correct"] * 4,
        }
        for s in listed
    }
    stored = {s["episode_id"]: [f"Swims at {OLD}.", "Likes “warm” water."] for s in listed}
    return {
        "judge": judge,
        "full_context": full,
        "naive_rag": rag,
        "mem0_full": mem0,
        "stored_memories": stored,
        "meta": {"reader_model": "gemini-3-flash-preview"},
    }


def make_suite(folder: Path) -> Path:
    """Write the suite and its report below `folder/release`."""
    root = folder / "release"
    described = {"description": "four", "backend": "b", "model": "m", "specs": specs()}
    write(root / SPECS, described)
    path = root / EPISODES
    path.write_text("".join(json.dumps(_episode(s)) + "\n" for s in specs()), encoding="utf-8")
    write(root / REPORT, report())
    write(root / "data/suite9/value_pairs.json", {"fact_types": []})
    (root / "README.md").write_text("read me", encoding="utf-8")
    return root


def change_line(root: Path, number: int, edit: Any) -> None:
    """Load a line of the episodes, edit it in place, write it again."""
    path = root / EPISODES
    lines = path.read_text(encoding="utf-8").split("\n")
    value = json.loads(lines[number - 1])
    edit(value)
    lines[number - 1] = json.dumps(value)
    path.write_text("\n".join(lines), encoding="utf-8")
