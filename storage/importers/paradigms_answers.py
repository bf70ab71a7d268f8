"""One system's published answers to one episode as rows: answers, verdicts, what was retrieved.

Three verdicts stand side by side: the published one (layer `published`), and what
both scorers make of the same answer with the shipped spec (layer `base`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from memprobe.outcomes import Reason
from memprobe.paradigms.scoring.results import (
    ERROR_MARK,
    Match,
    Score,
    parts_of_reason,
    score,
)
from memprobe.paradigms.spec import ProbeType
from memprobe.types import AccessMode, Protocol
from storage.importers.keeping import Row
from storage.importers.paradigms_episodes import Asked, Published, mapping, probe_type, text
from storage.importers.source import Issues, objects

BASE, LAYER = "base", "published"
_SCORED = {"status": "scored", "reason": None, "detail": None}
_SUB = "_sub_scores"
_PARTS = {
    "value_identified": "value",
    "source_identified": "source",
    "status_classified": "status",
    "target_applicability": "applicability",
}


def unscored(reason: Reason, detail: str) -> Row:
    """The outcome columns of a row without a verdict."""
    return {"status": "unscored", "reason": reason.value, "detail": detail}


@dataclass(frozen=True, slots=True)
class Source:
    """Whose answers these are: the file, the report's key, and the system as we call it.

    `keeps_sessions` tells that its store is the episode's sessions as they are.
    """

    path: str
    key: str
    system: str
    access_mode: str
    k: int | None
    keeps_sessions: bool = False


@dataclass(slots=True)
class Agreement:
    """How often the paper scorer gives a published verdict again."""

    same: int = 0
    compared: int = 0


@dataclass(slots=True)
class Answers:
    """The rows of one system and episode."""

    source: Source
    episode: Published
    issues: Issues
    agreement: Agreement
    tables: dict[str, list[Row]] = field(
        default_factory=lambda: {"answers": [], "probe_verdicts": [], "retrievals": []}
    )

    @property
    def store(self) -> Row:
        """The columns that name the store."""
        return {"system": self.source.system, "user_id": self.episode.id, "epoch": 1}

    def _where(self, place: str) -> str:
        return f"{self.source.key}.{self.episode.id}{place}"

    def _lost(self, place: str, problem: str, done: str) -> None:
        self.issues.add(
            self.source.path, self._where(place), problem, done,
            system=self.source.system, user_id=self.episode.id, table="probe_verdicts",
        )  # fmt: skip

    def _note(self, place: str, problem: str, done: str) -> None:
        self.issues.note(
            self.source.path, self._where(place), problem, done,
            system=self.source.system, user_id=self.episode.id, table="probe_verdicts",
        )  # fmt: skip

    def read(self, entry: Any) -> None:
        """All rows of an entry; a probe without an answer is an unscored row."""
        listed = entry.get("answers") if isinstance(entry, dict) else entry
        n_items = entry.get("n_memories") if isinstance(entry, dict) else None
        found: dict[ProbeType, tuple[int, Mapping[str, Any]]] = {}
        if not isinstance(listed, list):
            self._lost("", "no list of answers", "all its probes are unscored")
            listed = []
        for place, answer in enumerate(listed):
            self._sort(place, answer, found)
        for kind, asked in self.episode.probes.items():
            if kind in found:
                self._answer(asked, *found[kind], self._size(_count(n_items)))
            else:
                if listed:
                    self._lost("", f"no answer to {kind.value}", "the probe is unscored")
                self.absent(asked, "the report has no answer to this probe")

    def none(self) -> None:
        """The rows of an episode that the report says nothing of."""
        for asked in self.episode.probes.values():
            self.absent(asked, "the report has nothing of this episode")

    def _size(self, n_memories: int | None) -> int | None:
        """How many items a whole store shows; a search that is not recorded shows none."""
        if self.source.access_mode != AccessMode.DUMP_ALL:
            return None
        return len(self.episode.sessions) if self.source.keeps_sessions else n_memories

    def _sort(
        self, place: int, answer: Any, found: dict[ProbeType, tuple[int, Mapping[str, Any]]]
    ) -> None:
        at = f".answers[{place}]"
        said = answer.get("probe_type") if isinstance(answer, dict) else None
        kind = probe_type(said)
        if kind is None:
            self._lost(at, f"{said!r:.40} is no probe type", "no row; kept in `extras`")
        elif kind not in self.episode.probes:
            problem = f"{kind.value} is not asked in this episode"
            self._lost(at, problem, "no row; kept in `extras`")
        elif kind in found:
            problem = f"a second answer to {kind.value}"
            self._lost(at, problem, "the first counts; kept in `extras`")
        else:
            found[kind] = (place, answer)

    def _key(self, layer: str, asked: Asked) -> Row:
        return {
            **self.store,
            "layer": layer,
            "access_mode": self.source.access_mode,
            "k": self.source.k,
            "probe_type": asked.probe_type.value,
        }

    def absent(self, asked: Asked, detail: str) -> None:
        """The rows of a probe without an answer."""
        self._unanswered(asked, unscored(Reason.INVALID_OUTPUT, detail), None)

    def _unanswered(self, asked: Asked, outcome: Row, n_items: int | None) -> None:
        row = {"n_items": n_items, "prompt_tokens": None, "answer_json": None, "call_id": None}
        self.tables["answers"].append({**self._key(BASE, asked), **row, **outcome})
        blank = {"match": None, "parts_json": None, "why": None, "call_id": None, **outcome}
        for layer, scorer in (*((BASE, p.value) for p in Protocol), (LAYER, Protocol.PAPER.value)):
            verdict = {**self._key(layer, asked), "scorer": scorer, **blank}
            self.tables["probe_verdicts"].append(verdict)

    def _answer(
        self, asked: Asked, place: int, answer: Mapping[str, Any], n_memories: int | None
    ) -> None:
        at = f".answers[{place}]"
        said = answer.get("predicted")
        shown = self._retrieved(asked, at, answer.get("retrieved_indices"))
        n_items = n_memories if shown is None else shown
        if not isinstance(said, str):
            self._lost(f"{at}.predicted", "no text", "the probe is unscored")
            problem = "the answer is no text"
            self._unanswered(asked, unscored(Reason.INVALID_OUTPUT, problem), n_items)
            return
        if said.lstrip().startswith(ERROR_MARK):
            outcome = unscored(Reason.PROVIDER_ERROR, said.strip()[:500])
            self._unanswered(asked, outcome, n_items)
            return
        cached = text(answer.get("gold"))
        older = cached.strip() != asked.gold.strip()
        if older:
            problem = f"gold of an older spec: {cached[:120]!r}, shipped {asked.gold[:120]!r}"
            done = "scored anew with the shipped gold; the published verdict is kept"
            self._note(f"{at}.gold", problem, done)
        self.tables["answers"].append(
            {
                **self._key(BASE, asked),
                "n_items": n_items,
                "prompt_tokens": None,
                "answer_json": said,
                "call_id": None,
                **_SCORED,
            }
        )
        made = {protocol: score(asked.key, said, protocol) for protocol in Protocol}
        for protocol, one in made.items():
            self._verdict(BASE, protocol, asked, one)
        published = self._published(asked, at, answer)
        if published is None:
            detail = "the published verdict cannot be read"
            blank = {"match": None, "parts_json": None, "why": None, "call_id": None}
            self.tables["probe_verdicts"].append(
                {
                    **self._key(LAYER, asked),
                    "scorer": Protocol.PAPER.value,
                    **blank,
                    **unscored(Reason.INVALID_OUTPUT, detail),
                }
            )
            return
        self._verdict(LAYER, Protocol.PAPER, asked, published)
        self._compare(at, published, made[Protocol.PAPER], older)

    def _compare(self, at: str, published: Score, again: Score, older: bool) -> None:
        self.agreement.compared += 1
        if published.match is again.match:
            self.agreement.same += 1
            return
        because = "an older gold" if older else again.reason
        problem = f"published {published.match}, the paper scorer says {again.match}: {because}"
        self._note(f"{at}.match", problem[:400], "both are kept")

    def _verdict(self, layer: str, protocol: Protocol, asked: Asked, made: Score) -> None:
        outcome = _SCORED
        if made.match is Match.SKIP:
            outcome = unscored(Reason.DATASET_ERROR, made.reason)
        elif made.match is Match.EXECUTION_ERROR:
            outcome = unscored(Reason.INVALID_OUTPUT, made.reason)
        self.tables["probe_verdicts"].append(
            {
                **self._key(layer, asked),
                "scorer": protocol.value,
                "match": None if made.match is Match.EXECUTION_ERROR else made.match.value,
                "parts_json": json.dumps(dict(made.parts), sort_keys=True),
                "why": made.reason,
                "call_id": None,
                **outcome,
            }
        )

    def _published(self, asked: Asked, at: str, answer: Mapping[str, Any]) -> Score | None:
        said = answer.get("match")
        try:
            match = Match(text(said).strip().lower())
        except ValueError:
            self._lost(f"{at}.match", f"{said!r:.40} is no verdict", "unscored, scored anew")
            return None
        reason = text(answer.get("reason"))
        parts: dict[str, bool] = {}
        for name, held in answer.items():
            if name.endswith(_SUB):
                for part, value in mapping(held).items():
                    parts[_PARTS.get(part, part)] = value is True or value == "correct"
        if asked.probe_type is ProbeType.CONFLICT and "status" not in parts:
            parts |= parts_of_reason(reason)
            where, path = "conflict_sub_scores", self.source.path
            problem = "an older row without sub-scores"
            if "status" in parts:
                self.issues.once("parts", path, where, problem, "taken from the reason's text")
            elif match.scored:
                done = "the row is no part of source fidelity"
                self.issues.once("no parts", path, where, problem, done)
        return Score(match, reason, parts)

    def _retrieved(self, asked: Asked, at: str, indices: Any) -> int | None:
        if not isinstance(indices, list):
            return None
        sessions = self.episode.sessions
        rank = 0
        for index in indices:
            if isinstance(index, bool) or not isinstance(index, int) or not (
                0 <= index < len(sessions)
            ):  # fmt: skip
                problem = f"{index!r:.20} is no session"
                self._lost(f"{at}.retrieved_indices", problem, "left out")
                continue
            rank += 1
            self.tables["retrievals"].append(
                {
                    **self.store,
                    "category": self.episode.paradigm.value,
                    "dimension": asked.probe_type.value,
                    "query": asked.question,
                    "rank": rank,
                    "item_id": f"s{index + 1:04d}",
                    "content": _session_text(sessions[index]),
                    "score": None,
                }
            )
        return rank


def ingest_rows(answers: Answers, entry: Any, issues: Issues) -> list[Row]:
    """`ingests` of an entry: what is known of how its sessions went in.

    A published report counts the errors and does not say which sessions they were:
    one row of session 0 then stands for them.
    """
    if not isinstance(entry, dict) or "ingest_errors" not in entry:
        return []
    errors = _count(entry.get("ingest_errors"))
    sessions = answers.episode.sessions
    fed = _count(entry.get("sessions_fed"))
    where = f"{answers.source.key}.{answers.episode.id}"
    about = {"system": answers.source.system, "user_id": answers.episode.id, "table": "ingests"}
    if errors is None:
        said = entry.get("ingest_errors")
        problem = f"{said!r:.40} is no count"
        issues.add(answers.source.path, f"{where}.ingest_errors", problem, "no row", **about)
        return []
    if fed is not None and fed != len(sessions):
        problem = f"{fed} sessions fed, the episode has {len(sessions)}"
        issues.note(answers.source.path, f"{where}.sessions_fed", problem, "as it is", **about)
    if errors:
        detail = f"{errors} of {len(sessions)} sessions failed; the report does not say which"
        row = {"session_index": 0, "event_time": sessions[0]["event_time"] if sessions else ""}
        return [{**answers.store, **row, **unscored(Reason.ADAPTER_ERROR, detail)}]
    return [
        {
            **answers.store,
            "session_index": session["session_index"],
            "event_time": session["event_time"],
            **_SCORED,
        }
        for session in sessions[: fed if fed is not None else len(sessions)]
    ]


def memory_rows(answers: Answers, items: list[Any], issues: Issues) -> list[Row]:
    """`memory_items` of stored memories: texts, or objects with a text and more."""
    rows: list[Row] = []
    for seq, item in enumerate(items):
        more: dict[str, Any] = {}
        content: Any = item
        if isinstance(item, dict):
            more = dict(item)
            name = next((n for n in ("content", "memory", "text", "fact") if n in more), "")
            content = more.pop(name, None)
        if not isinstance(content, str):
            issues.add(
                answers.source.path, f"stored memories of {answers.episode.id}[{seq}]", "no text",
                "left out; kept in `extras`", system=answers.source.system,
                user_id=answers.episode.id, table="memory_items",
            )  # fmt: skip
            continue
        given = more.pop("id", None)
        rows.append(
            {
                **answers.store,
                "seq": seq,
                "item_id": given if isinstance(given, str) and given else f"m{seq + 1:04d}",
                "content": content,
                "event_time": None,
                "chars": len(content),
                "fields_json": json.dumps(more, ensure_ascii=False, sort_keys=True),
            }
        )
    return rows


def session_rows(answers: Answers) -> list[Row]:
    """`memory_items` of a baseline that keeps sessions, in the form that ours has them."""
    rows: list[Row] = []
    for seq, session in enumerate(answers.episode.sessions):
        name, content = f"s{session['session_index']:04d}", _session_text(session)
        rows.append(
            {
                **answers.store,
                "seq": seq,
                "item_id": name,
                "content": content,
                "event_time": session["event_time"],
                "chars": len(content),
                "fields_json": json.dumps({"session_id": name}),
            }
        )
    return rows


def _count(value: Any) -> int | None:
    good = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 31
    return value if good else None


def _session_text(session: Row) -> str:
    return "\n".join(
        f"{turn['role'].capitalize().replace('_', ' ')}: {turn['content']}"
        for turn in objects(json.loads(session["dialogue_json"]))
    )
