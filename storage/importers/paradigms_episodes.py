"""Published episodes as rows of `specs`, `sessions` and `probes`, and as keys for the scorers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from pydantic import ValidationError

from memprobe.dataset import explain
from memprobe.paradigms.scoring.results import ConflictKey, Key, TemporalKey
from memprobe.paradigms.spec import Condition, Domain, Episode, Expected, Paradigm, ProbeType
from storage.importers.keeping import Row
from storage.importers.source import Issues, objects

DAY_ONE = datetime(2026, 1, 1, tzinfo=UTC)
"""Published sessions have a number and no time; each gets a day, which keeps their order."""
NO_TIMES = (
    "sessions have a number and no time",
    "session n is day n from 2026-01-01, to keep the order",
)
_PROBES = {**{p.value: p for p in ProbeType}, "change_detection": ProbeType.CHANGE}
_DESIGNS = ("paired", "triplet", "quad", "standalone")


@dataclass(frozen=True, slots=True)
class Asked:
    """A published probe."""

    probe_type: ProbeType
    question: str
    gold: str
    expected: Expected
    key: Key


@dataclass(frozen=True, slots=True)
class Published:
    """An episode that can be used: its rows and its probes by type, in order."""

    id: str
    paradigm: Paradigm
    probes: dict[ProbeType, Asked]
    sessions: tuple[Row, ...]
    rows: dict[str, list[Row]]


def text(value: Any) -> str:
    """A value as text when it is one, else empty."""
    return value if isinstance(value, str) else ""


def mapping(value: Any) -> Mapping[str, Any]:
    """A value as an object when it is one, else an empty one."""
    return value if isinstance(value, dict) else {}


def probe_type(value: Any) -> ProbeType | None:
    """A published probe type; the publication calls `change` `change_detection`."""
    return _PROBES.get(value) if isinstance(value, str) else None


class Reader:
    """Reads the episodes of one file; what is wrong becomes an issue at its line."""

    def __init__(self, path: str, issues: Issues, digest: str) -> None:
        self.path = path
        self.issues = issues
        self.digest = digest

    def _lost(self, where: str, problem: str, done: str, user: str, table: str = "probes") -> None:
        self.issues.add(self.path, where, problem, done, user_id=user, table=table)

    def read(
        self, number: int, found: Mapping[str, Any], spec: Mapping[str, Any]
    ) -> Published | None:
        """An episode of a line with its spec; None when no row can be made of it."""
        at = f"line {number}"
        name = text(found.get("episode_id"))
        gone = "no row is made; its text is kept in `extras`"
        try:
            paradigm = Paradigm(text(spec.get("paradigm") or found.get("paradigm")))
            condition = Condition(text(spec.get("condition") or found.get("condition")))
        except ValueError as error:
            self._lost(at, str(error), gone, name)
            return None
        try:
            domain = Domain(text(spec.get("domain")))
        except ValueError:
            problem = f"{spec.get('domain')!r:.40} is no domain"
            self.issues.note(self.path, at, problem, "it is called unknown", user_id=name)
            domain = Domain("unknown")
        sessions = self._sessions(at, name, found.get("sessions"))
        split = any(
            "_p" in s["session_type"] for s in sessions if "perturbation" in s["session_type"]
        )
        probes = self._probes(at, name, found, spec, condition)
        if not probes:
            self._lost(at, "no probe that can be used", gone, name)
            return None
        of_probes = [
            {
                "user_id": name,
                "probe_index": index,
                "probe_type": asked.probe_type.value,
                "question": asked.question,
                "gold_answer": asked.gold or None,
                "expected": asked.expected.value,
                "paradigm": paradigm.value,
                "condition": condition.value,
                "domain": str(domain),
                "split": split,
                "group_id": text(spec.get("group_id")) or None,
                "fact_type": text(spec.get("fact_type")) or None,
                "structured_temporal": asked.probe_type is ProbeType.TEMPORAL
                and asked.key.temporal is not None,
            }
            for index, asked in enumerate(probes.values(), 1)
        ]  # fmt: skip
        rows: dict[str, list[Row]] = {"sessions": sessions, "probes": of_probes}
        ours = self._spec(at, name, spec, domain, split, rows)
        if ours is not None:
            rows["specs"] = [
                {
                    "user_id": name,
                    "spec_json": ours,
                    "n_sessions": len(sessions),
                    "dataset_digest": self.digest,
                }
            ]
        return Published(name, paradigm, probes, tuple(sessions), rows)

    def _sessions(self, at: str, name: str, listed: Any) -> list[Row]:
        if not isinstance(listed, list) or not listed:
            done = "the episode has none; its probes are kept"
            self._lost(f"{at}, sessions", "no list of sessions", done, name, "sessions")
            return []
        self.issues.once("times", self.path, "sessions", *NO_TIMES)
        rows: list[Row] = []
        for index, session in enumerate(listed, 1):
            said = session.get("dialogue") if isinstance(session, dict) else None
            turns = [
                {"role": turn["role"], "content": turn["content"]}
                for turn in objects(said)
                if isinstance(turn.get("role"), str) and isinstance(turn.get("content"), str)
            ]
            if not isinstance(said, list) or len(turns) != len(said) or not turns:
                where = f"{at}, sessions[{index - 1}].dialogue"
                n = len(said) if isinstance(said, list) else 0
                problem = f"{len(turns)} of {n} messages have role and content"
                self._lost(where, problem, "the others are left out", name, "sessions")
            kind = text(session.get("session_type")) if isinstance(session, dict) else ""
            rows.append(
                {
                    "user_id": name,
                    "session_index": index,
                    "session_type": kind or "unknown",
                    "event_time": (DAY_ONE + timedelta(days=index - 1)).isoformat(),
                    "dialogue_json": json.dumps(turns, ensure_ascii=False),
                }
            )
        return rows

    def _probes(
        self,
        at: str,
        name: str,
        found: Mapping[str, Any],
        spec: Mapping[str, Any],
        condition: Condition,
    ) -> dict[ProbeType, Asked]:
        probes: dict[ProbeType, Asked] = {}
        listed = found.get("probes")
        for place, probe in enumerate(listed if isinstance(listed, list) else []):
            where = f"{at}, probes[{place}]"
            entry = probe if isinstance(probe, dict) else {}
            kind = probe_type(entry.get("probe_type", entry.get("type")))
            question = text(entry.get("question")) or text(entry.get("question_hint"))
            if kind is None or not question:
                said = entry.get("probe_type", entry.get("type"))
                problem = f"{said!r:.40} is no probe type" if kind is None else "no question"
                self._lost(where, problem, "no row is made", name)
                continue
            if kind in probes:
                self._lost(where, f"a second {kind.value}", "the first counts", name)
                continue
            stated = entry.get("expected_behavior") or spec.get("expected_behavior")
            try:
                expected = Expected(text(stated or found.get("expected_behavior")))
            except ValueError:
                problem = f"{stated!r:.40} is no expected behaviour"
                self._lost(f"{where}.expected_behavior", problem, "no row is made", name)
                continue
            gold = text(entry.get("gold_answer"))
            if not gold.strip():
                problem = "no gold answer"
                self._lost(f"{where}.gold_answer", problem, "the probe is skipped", name)
            key = key_of_published(kind, gold, condition, spec)
            probes[kind] = Asked(kind, question, gold, expected, key)
        return probes

    def _spec(
        self,
        at: str,
        name: str,
        spec: Mapping[str, Any],
        domain: Domain,
        split: bool,
        rows: Mapping[str, list[Row]],
    ) -> str | None:
        """The spec in our form, which a stored run is read again by; `extras` has the original."""
        gold, how = mapping(spec.get("gold")), mapping(spec.get("perturbation"))
        why, conflict = gold.get("temporal_gold"), gold.get("conflict_gold")
        design, fact = spec.get("group_design"), text(spec.get("fact_type"))
        made = {
            "episode_id": name,
            "group_id": spec.get("group_id") or name,
            "group_design": design if design in _DESIGNS else "standalone",
            "paradigm": spec.get("paradigm"),
            "condition": spec.get("condition"),
            "domain": str(domain),
            "fact_type": fact,
            "fact_question": f"the user's {fact.replace('_', ' ')}",
            "initial_value": spec.get("canonical_initial"),
            "new_value": spec.get("canonical_new"),
            "distractor_values": spec.get("distractor_values"),
            "expected_behavior": spec.get("expected_behavior"),
            "difficulty": spec.get("difficulty_target"),
            "perturbation": {k: how.get(k) for k in
                             ("source_type", "evidence_strength", "authoritative", "reactivation")},
            "split": split,
            "gold": {
                "current_value": gold.get("current_value"),
                "previous_value": gold.get("previous_value"),
                "has_changed": gold.get("has_changed"),
                "source_of_change": gold.get("source_of_change"),
                "temporal": {k: why.get(k) for k in ("trigger", "reason", "order")}
                if isinstance(why, dict) else None,
                "conflict": {
                    "value": conflict.get("conflict_value"),
                    "source": conflict.get("source"),
                    "source_label": conflict.get("source_label"),
                    "status": conflict.get("status"),
                } if isinstance(conflict, dict) else None,
            },
        }  # fmt: skip
        whole = {
            "spec": made,
            "sessions": [
                {"session_type": s["session_type"], "time": s["event_time"],
                 "dialogue": json.loads(s["dialogue_json"])}
                for s in rows["sessions"]
            ],
            "probes": [
                {"probe_type": p["probe_type"], "question": p["question"],
                 "gold_answer": p["gold_answer"], "expected_behavior": p["expected"]}
                for p in rows["probes"]
            ],
        }  # fmt: skip
        try:
            return Episode.model_validate(whole).spec.model_dump_json()
        except ValidationError as error:
            done = "scored, but not to be read again by another reader; kept in `extras`"
            problem = f"no episode of our form: {explain(error)[:300]}"
            self._lost(at, problem, done, name, "specs")
            return None


def key_of_published(
    kind: ProbeType, gold: str, condition: Condition, spec: Mapping[str, Any]
) -> Key:
    """What is true for a published probe, from its spec."""
    golds = mapping(spec.get("gold"))
    conflict, temporal = golds.get("conflict_gold"), golds.get("temporal_gold")
    old = text(spec.get("canonical_initial")) or text(golds.get("original_value"))
    new = text(spec.get("canonical_new")) or text(spec.get("new_value"))
    return Key(
        kind,
        gold,
        condition,
        old,
        new,
        ConflictKey(
            text(conflict.get("conflict_value")),
            text(conflict.get("source")),
            text(conflict.get("status")),
            text(conflict.get("target_remains")),
            conflict.get("applies_to_target") is True,
            text(conflict.get("source_label")).replace("_", " "),
        )
        if isinstance(conflict, dict)
        else None,
        TemporalKey(
            text(temporal.get("old_value")) or old,
            text(temporal.get("new_value")) or new,
            text(temporal.get("trigger")),
            text(temporal.get("reason")),
        )
        if isinstance(temporal, dict)
        else None,
    )
