"""One user's verdicts and attributions with one system in one access mode."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from memprobe.metrics import SCALE
from memprobe.outcomes import Reason
from memprobe.types import AccessMode, AttributionLabel
from storage.importers.episodes import Owner, item_key
from storage.importers.source import Document, Issues, number, objects
from storage.importers.templates import Rows, Template
from storage.importers.users import NOT_IN_BANK, SCORED, unscored

LAYER = "base"
TOP_K = 5
OVERFLOW = (
    "published as 0: every label of this user is 'unknown' without a reason, which the release "
    "shows where a store did not fit the reader's window; never measured"
)
NO_ANSWER = "published as scored: the label is 'unknown' without a reason; never measured"
EMPTY_TRANSCRIPT = "as published: judged on an empty transcript"
HARNESS = AttributionLabel.HARNESS_FAILURE.value
_LABELS = frozenset(label.value for label in AttributionLabel)
Row = dict[str, Any]
Key = tuple[str, str]


class Judged:
    """The records of one access mode: whose, where their rows go, and from which file."""

    def __init__(self, rows: Rows, owner: Owner, mode: AccessMode, issues: Issues) -> None:
        self.rows = rows
        self.owner = owner
        self.mode = mode.value
        self.k = None if mode is AccessMode.DUMP_ALL else TOP_K
        self.issues = issues
        self.details: dict[Key, Mapping[str, Any]] = {}
        self.targets = [(row["category"], row["dimension"]) for row in rows.shared("targets")]
        self._known = frozenset(self.targets)

    def key(self, category: str, dimension: str) -> Row:
        """The columns that identify a row."""
        return {
            **self.owner.key, "layer": LAYER, "access_mode": self.mode, "k": self.k,
            "category": category, "dimension": dimension,
        }  # fmt: skip

    def add_verdicts(self, document: Document, ids: Mapping[str, str]) -> Any:
        """Rows of `slot_fills`, `verdicts` and `retrievals`; returns the file's template.

        `ids` maps what an item without an id holds to the id its row was given.
        """
        about = self.owner.about("verdicts")
        value = document.value
        template = Template(self.rows, document.dollar)
        listed = value.get("details") if isinstance(value, dict) else None
        if not isinstance(listed, list):
            self.issues.add(document.path, "details", "no list", "no verdict from it", **about)
            self.fill("the file has no details")
            return template.literal(value)
        unread = _unread(listed)
        whole = self.k is None and unread == len(listed) > 0
        parts = []
        for place, detail in enumerate(listed):
            where = f"details[{place}]"
            key = self._detail_key(document.path, where, detail)
            if key is None:
                parts.append(template.literal(detail))
                continue
            self.details[key] = detail
            self._verdict(document.path, where, key, detail, whole)
            parts.append(self._detail(template, key, detail, document.path, where, ids))
        missing = self.fill("the release's file has no record of this target")
        if missing:
            self.issues.add(
                document.path, "details", f"{missing} targets have no record", "unscored", **about
            )
        return template.object(value, {}, {"details": parts})

    def _detail_key(self, path: str, where: str, detail: Any) -> Key | None:
        about = self.owner.about("verdicts")
        names = [
            detail.get(n) if isinstance(detail, dict) else None for n in ("category", "dimension")
        ]
        category, dimension = names
        if not isinstance(category, str) or not isinstance(dimension, str) or not dimension:
            self.issues.add(path, where, "no category and dimension", "no row", **about)
            return None
        if (category, dimension) in self.details:
            self.issues.add(path, where, f"{dimension} is there twice", "the first counts", **about)
            return None
        stated = detail.get("scoring_mode")
        if stated != self.mode:
            self.issues.add(
                path, f"{where}.scoring_mode", f"{stated!r:.40} in a file of {self.mode}",
                "the folder decides", severity="note", **about,
            )  # fmt: skip
        return category, dimension

    def _verdict(
        self, path: str, where: str, key: Key, detail: Mapping[str, Any], whole: bool
    ) -> None:
        label, why = detail.get("predicted"), detail.get("slot_fill_reason")
        text = label if isinstance(label, str) else None
        filled, judged = SCORED, SCORED
        score = number(detail.get("score"))
        if text is None:
            self._report(path, f"{where}.predicted", "no text", "unscored")
            filled = judged = unscored(Reason.INVALID_OUTPUT, "the label is no text")
        if score is None or score not in SCALE:
            shown = f"{detail.get('score')!r:.40} is not on the scale {', '.join(map(str, SCALE))}"
            self._report(path, f"{where}.score", shown, "unscored")
            judged = unscored(Reason.INVALID_OUTPUT, "the score is not on the scale")
        if not self.owner.known:
            filled = judged = unscored(Reason.DATASET_ERROR, NOT_IN_BANK)
        elif key not in self._known:
            self._report(path, f"{where}.dimension", "/".join(key) + " is no target", "unscored")
            filled = judged = unscored(Reason.DATASET_ERROR, "no target of the user")
        elif _no_answer(detail) and judged["status"] == "scored":
            reason = Reason.STORE_OVERFLOW if whole else Reason.INVALID_OUTPUT
            said = OVERFLOW if whole else NO_ANSWER
            filled = judged = {"status": "scored", "reason": reason.value, "detail": said}
            if not whole:
                self.issues.note(
                    path, f"{where}.slot_fill_reason", "'unknown' without a reason",
                    "kept as published, marked as never measured", **self.owner.about("verdicts"),
                )  # fmt: skip
        found = detail.get("retrieved_memories")
        # What has no target here has no truth: a second judge must not score it either.
        judgeable = self.owner.known and key in self._known
        self.rows.add(
            "slot_fills",
            {
                **self.key(*key), "label": text,
                "label_reason": why if isinstance(why, str) else None,
                "n_items": len(found) if isinstance(found, list) else None,
                "prompt_tokens": None, **filled, "call_id": None,
            },
        )  # fmt: skip
        said_why = detail.get("judge_reason")
        self.rows.add(
            "verdicts",
            {
                **self.key(*key), "label": text if judgeable else None,
                "score": score if judged["status"] == "scored" else None,
                "judge_reason": said_why if isinstance(said_why, str) else None,
                "judge_model": None, **judged, "call_id": None,
            },
        )  # fmt: skip

    def _report(self, path: str, where: str, problem: str, done: str) -> None:
        self.issues.add(path, where, problem, done, **self.owner.about("verdicts"))

    def fill(self, detail: str) -> int:
        """Unscored rows for targets that have no record; how many."""
        n = 0
        reason = Reason.DATASET_ERROR
        for key in self.targets:
            if self.rows.get("verdicts", (self.mode, *key)) is None:
                blank = {**self.key(*key), **unscored(reason, detail), "label": None}
                self.rows.add("slot_fills", dict(blank))
                self.rows.add("verdicts", {**blank, "score": None})
                n += 1
        return n

    def _detail(
        self, template: Template, key: Key, detail: Mapping[str, Any], path: str, where: str,
        ids: Mapping[str, str],
    ) -> Any:  # fmt: skip
        at = (self.mode, *key)
        columns: dict[str, tuple[Any, ...]] = {
            "category": ("verdicts", "category", *at),
            "dimension": ("verdicts", "dimension", *at),
            "explanation": ("targets", "explanation", *key),
            "ground_truth": ("targets", "short", *key),
            "predicted": ("slot_fills", "label", *at),
            "slot_fill_reason": ("slot_fills", "label_reason", *at),
            "score": ("verdicts", "score", *at),
            "judge_reason": ("verdicts", "judge_reason", *at),
            "scoring_mode": ("verdicts", "access_mode", *at),
        }
        parts: dict[str, Any] = {}
        if "retrieved_memories" in detail:
            found = detail["retrieved_memories"]
            if self.k is not None and isinstance(found, list):
                parts["retrieved_memories"] = [
                    self._retrieved(template, key, rank, item, path, where, ids)
                    for rank, item in enumerate(found, 1)
                ]
            elif self.k is not None:
                self._report(path, f"{where}.retrieved_memories", "no list", "no retrieval rows")
        elif self.k is not None:
            self._report(path, f"{where}.retrieved_memories", "not there", "no retrieval rows")
        truth = self.rows.get("targets", key)
        for name, column in (("ground_truth", "short"), ("explanation", "explanation")):
            if truth is not None and detail.get(name) != truth[column]:
                self.issues.note(
                    path, f"{where}.{name}", "not what the bank says",
                    "the bank's text is the target's", **self.owner.about("targets"),
                )  # fmt: skip
        return template.object(detail, columns, parts)

    def _retrieved(
        self, template: Template, key: Key, rank: int, item: Any, path: str, where: str,
        ids: Mapping[str, str],
    ) -> Any:  # fmt: skip
        about = self.owner.about("retrievals")
        here = f"{where}.retrieved_memories[{rank - 1}]"
        content = item.get("content") if isinstance(item, dict) else None
        if not isinstance(content, str):
            self.issues.add(path, here, "no content", "no row", **about)
            return template.literal(item)
        own = item.get("id")
        known = own if isinstance(own, str) else ids.get(item_key(item))
        if known is None:
            self.issues.note(path, here, "no such item in the store", "its id is unknown", **about)
        raw = item.get("score")
        score = number(raw)
        if raw is not None and score is None:
            self.issues.add(path, f"{here}.score", "no number", "stored without", **about)
        self.rows.add(
            "retrievals",
            {
                **self.owner.key, "category": key[0], "dimension": key[1], "query": "",
                "rank": rank, "item_id": known or "", "content": content, "score": score,
            },
        )  # fmt: skip
        at = (*key, rank)
        return template.object(
            item,
            {
                "id": ("retrievals", "item_id", *at),
                "content": ("retrievals", "content", *at),
                "score": ("retrievals", "score", *at),
            },
        )

    def add_attributions(self, document: Document, transcripts: bool) -> Any:
        """Rows of `attributions`; returns the file's template.

        `transcripts` tells whether the dialogue was where the published step looked for it.
        """
        about = self.owner.about("attributions")
        value = document.value
        template = Template(self.rows, document.dollar)
        listed = value.get("details") if isinstance(value, dict) else None
        if not isinstance(listed, list):
            self.issues.add(document.path, "details", "no list", "no attribution", **about)
            self.fill_attributions("the file has no details")
            return template.literal(value)
        parts = []
        for place, detail in enumerate(listed):
            where = f"details[{place}]"
            names = ("category", "dimension")
            key = tuple(detail.get(n) for n in names) if isinstance(detail, dict) else ()
            if len(key) != 2 or not all(isinstance(k, str) and k for k in key):
                self.issues.add(
                    document.path, where, "no category and dimension", "no row", **about
                )
                parts.append(template.literal(detail))
                continue
            added = self._attribution(document.path, where, key, detail, transcripts)
            parts.append(self._attributed(template, key, detail, document.path, where, added))
        missing = self.fill_attributions("the release's file has no record of this target")
        if missing:
            self.issues.add(
                document.path, "details", f"{missing} targets have no record",
                "their attribution is `harness_failure`", **about,
            )  # fmt: skip
        return template.object(value, {}, {"details": parts})

    def _attribution(
        self, path: str, where: str, key: Any, detail: Mapping[str, Any], transcripts: bool
    ) -> bool:
        about = self.owner.about("attributions")
        found = detail.get("attribution")
        given: Mapping[str, Any] = found if isinstance(found, dict) else {}
        label = given.get("category")
        verdict = self.rows.get("verdicts", (self.mode, *key))
        outcome = SCORED
        stages = {
            s["stage"]: s for s in objects(given.get("stages")) if isinstance(s.get("stage"), str)
        }
        if label not in _LABELS:
            self.issues.add(
                path, f"{where}.attribution.category", f"{label!r:.60} is no label",
                "`harness_failure`, unscored", **about,
            )  # fmt: skip
            outcome = unscored(Reason.DATASET_ERROR, "the release's label is unknown")
        elif verdict is None or verdict["status"] == "unscored":
            why = "no verdict on this target" if verdict is None else verdict["detail"]
            outcome = unscored(Reason.DATASET_ERROR, why)
            if verdict is None:
                self.issues.add(path, where, "no verdict on this target", "unscored", **about)
        elif number(given.get("score")) != verdict["score"]:
            self.issues.note(
                path, f"{where}.attribution.score", "not the verdict's score",
                "the verdict's counts; this one is kept in `extras`", **about,
            )  # fmt: skip
        if outcome is SCORED and "disclosure" in stages and not transcripts:
            outcome = {**SCORED, "detail": EMPTY_TRANSCRIPT}
        episode = given.get("ep_index")
        oracle, shown = stages.get("oracle", {}), stages.get("disclosure", {})
        why = stages.get("disclosure_subclass", oracle).get("reason")
        row = {
            **self.key(*key),
            "label": label if outcome["status"] == "scored" else HARNESS,
            "score": verdict["score"] if verdict else None,
            "episode": episode if type(episode) is int and abs(episode) < 2**31 else None,
            "can_invite": _bool(oracle.get("can_invite")),
            "disclosed": _bool(shown.get("disclosed")),
            "evidence": shown["evidence"] if isinstance(shown.get("evidence"), str) else None,
            "cause_reason": why if isinstance(why, str) else None,
            **outcome,
            "oracle_call": None, "disclosure_call": None, "subclass_call": None,
        }  # fmt: skip
        if not self.rows.add("attributions", row):
            self.issues.add(path, where, f"{key[1]} is there twice", "the first counts", **about)
            return False
        return True

    def _attributed(
        self, template: Template, key: Any, detail: Mapping[str, Any], path: str, where: str,
        added: bool,
    ) -> Any:  # fmt: skip
        rest = {k: v for k, v in detail.items() if k != "attribution"}
        judged = self.details.get(key)
        same = judged is not None and list(judged.items()) == list(rest.items())
        if judged is not None and not same:
            self.issues.note(
                path, where, "not what recon_judge says", "recon_judge counts",
                **self.owner.about("attributions"),
            )  # fmt: skip
        found = detail.get("attribution")
        at = (self.mode, *key)
        part = template.literal(found)
        if isinstance(found, dict) and added:
            part = template.object(
                found,
                {
                    "category": ("attributions", "label", *at),
                    "score": ("attributions", "score", *at),
                    "ep_index": ("attributions", "episode", *at),
                },
                {"stages": [_stage(template, s, at, key) for s in found["stages"]]}
                if isinstance(found.get("stages"), list)
                else None,
            )
        if same and list(detail)[-1:] == ["attribution"]:
            return {"$": ["detail", *key, part]}
        return template.object(detail, {}, {"attribution": part})

    def fill_attributions(self, detail: str) -> int:
        """Unscored rows for targets without an attribution; how many."""
        n = 0
        for key in self.targets:
            if self.rows.get("attributions", (self.mode, *key)) is None:
                verdict = self.rows.get("verdicts", (self.mode, *key))
                self.rows.add(
                    "attributions",
                    {
                        **self.key(*key),
                        "label": HARNESS,
                        "score": verdict["score"] if verdict else None,
                        **unscored(Reason.DATASET_ERROR, detail),
                    },
                )
                n += 1
        return n


def _bool(value: Any) -> bool | None:
    return value if isinstance(value, bool) else None


def _no_answer(detail: Any) -> bool:
    if not isinstance(detail, dict):
        return False
    return detail.get("predicted") == "unknown" and detail.get("slot_fill_reason") == ""


def _unread(details: list[Any]) -> int:
    return sum(_no_answer(detail) for detail in details)


def _stage(template: Template, stage: Any, at: tuple[Any, ...], key: Any) -> Any:
    if not isinstance(stage, dict):
        return template.literal(stage)
    columns: dict[str, tuple[Any, ...]] = {}
    match stage.get("stage"):
        case "oracle":
            columns = {
                "can_invite": ("attributions", "can_invite", *at),
                "reason": ("oracle_verdicts", "oracle_reason", *key),
            }
        case "disclosure":
            columns = {
                "disclosed": ("attributions", "disclosed", *at),
                "evidence": ("attributions", "evidence", *at),
            }
        case "disclosure_subclass":
            columns = {"reason": ("attributions", "cause_reason", *at)}
    return template.object(stage, columns)
