"""The rules of the gallery: which cases show how a target was lost, or should not have counted.

A rule is a function of one user's stored records (as `cases.user_payload` gives them) and
of nothing else: no model, no draw. It says how many cases it looked at and which of them
it holds for, each with a key to rank by. Words are compared by their first six letters, so
that `outlined` is found in `outlines`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from memprobe.stopwords import STOP_WORDS
from memprobe.types import AccessMode, AttributionLabel, Category
from tasks.report.packing import variant_name

Row = dict[str, Any]
RECOVERED = 0.75
MIN_LETTERS = 4
STEM = 6
MIN_WORDS = 3
"""Fewer words than these are no trace of an answer or a disclosure."""
QUOTE_WORDS = 4
"""As many words in a row are a quotation."""
HELD = 0.5
"""A text that holds this share of the words holds what they say."""

_STOP = frozenset(STOP_WORDS.split())
_WORD = re.compile(r"[^\W\d_]+")
_STEM = re.compile(rf"([^\W\d_]{{{MIN_LETTERS},{STEM}}})[^\W\d_]*")
_GAP = re.compile(r"[\W_]+")
_PIECES = re.compile(r"[\"“”„«»…/;|]|\.\.\.")


def words(text: str | None) -> list[str]:
    """The distinct words of a text that carry meaning, in order: four letters, no stop word."""
    found = _WORD.findall((text or "").lower())
    return [w for w in dict.fromkeys(found) if len(w) >= MIN_LETTERS and w not in _STOP]


def plain(text: str | None) -> str:
    """Lower case, words only, a space on both ends."""
    bare = (text or "").lower().replace("’", "").replace("'", "")
    return f" {_GAP.sub(' ', bare).strip()} "


def stems(text: str) -> set[str]:
    """The words of a text of four letters and more, as they are compared."""
    return set(_STEM.findall(text.lower()))


def share_held(wanted: list[str], text: str) -> float:
    """The share of the wanted words that a text holds; 0 for no words."""
    needed = stems(" ".join(wanted))
    return len(needed & stems(text)) / len(needed) if needed else 0.0


@dataclass(frozen=True, slots=True)
class Hit:
    """A case that a rule holds for.

    `key` ranks it, smallest first; `facts` tell why the rule holds; `shown` are the
    places of stored items that belong to it, most telling first.
    """

    key: tuple[Any, ...]
    case: Row
    facts: tuple[tuple[str, str], ...]
    shown: tuple[int, ...] = ()


@dataclass(slots=True)
class Store:
    """One store of a user, with the words of its items."""

    raw: Row
    _held: list[set[str]] | None = None
    _replies: dict[int, tuple[str, str]] = field(default_factory=dict)

    @property
    def held(self) -> list[set[str]]:
        """The words of each item, made when first asked for."""
        if self._held is None:
            self._held = [stems(item["text"]) for item in self.raw["items"]]
        return self._held

    @property
    def chars(self) -> int:
        """Characters of all items."""
        return sum(len(item["text"]) for item in self.raw["items"])

    def best(self, wanted: list[str]) -> list[tuple[float, int]]:
        """Items with a share of the words that they hold, the best first; none that holds none."""
        needed = stems(" ".join(wanted))
        found = [
            (len(needed & own) / len(needed), at)
            for at, own in enumerate(self.held)
            if not needed.isdisjoint(own)
        ]
        return sorted(found, key=lambda f: (-f[0], f[1]))

    def quotes(self, evidence: str | None, number: int | None) -> list[str]:
        """Pieces of evidence that are in a reply of the user and not in the task."""
        episode = self.raw["episodes"].get(number)
        if not evidence or number is None or episode is None:
            return []
        if number not in self._replies:
            said = " ".join(turn["user"] or "" for turn in episode["turns"])
            self._replies[number] = plain(said), plain(episode.get("task"))
        replies, task = self._replies[number]
        pieces = [piece.strip() for piece in _PIECES.split(evidence)]
        return [piece for piece in pieces if _quoted(plain(piece), replies, task)]


def _quoted(piece: str, replies: str, task: str) -> bool:
    return piece.count(" ") > QUOTE_WORDS and piece in replies and piece not in task


class UserRecords:
    """One user's records, arranged for the rules: base verdicts by store, target and way."""

    def __init__(self, payload: Row) -> None:
        self.user: str = payload["user"]
        self.targets: dict[str, Row] = payload["targets"]
        self.stores = {
            (system, int(epoch)): Store(raw)
            for system, epochs in payload["stores"].items()
            for epoch, raw in epochs.items()
        }
        self.cases: list[Row] = []
        self.whole: dict[tuple[str, int, str], Row] = {}
        self.top: dict[tuple[str, int, str], Row] = {}
        for case in payload["cases"]:
            row = {"access_mode": case["mode"], "k": case["k"], "epoch": case["epoch"]}
            if case["variant"] != variant_name(row):
                continue
            self.cases.append(case)
            at = case["system"], case["epoch"], case["target"]
            if case["mode"] == AccessMode.DUMP_ALL.value:
                self.whole[at] = case
            elif at not in self.top or case["k"] > self.top[at]["k"]:
                self.top[at] = case

    def store(self, case: Row) -> Store | None:
        """The store that a case was read from."""
        return self.stores.get((case["system"], case["epoch"]))

    def both(self) -> Iterator[tuple[Row, Row]]:
        """Targets measured from the whole store and by the largest k."""
        for at, whole in self.whole.items():
            top = self.top.get(at)
            if top is not None and measured(whole) and measured(top):
                yield whole, top

    def key(self, case: Row, *ranks: float) -> tuple[Any, ...]:
        """A sort key that no two cases share."""
        return (*ranks, self.user, case["system"], case["target"], case["variant"])

    def truth(self, case: Row) -> str:
        """The target in short."""
        return str(self.targets.get(case["target"], {}).get("short") or "")


def measured(case: Row) -> bool:
    """Whether there is a score with a measurement behind it."""
    verdict = case["verdict"]
    return verdict["score"] is not None and verdict.get("reason") is None


def recovered(case: Row) -> bool:
    """Whether the score counts as recovered."""
    return bool(case["verdict"]["score"] >= RECOVERED)


def _disclosed(records: UserRecords) -> Iterator[tuple[Row, Store, list[str]]]:
    """Whole-store losses that the user disclosed, with the quotations that show it."""
    for case in records.whole.values():
        blame, store = case.get("attribution"), records.store(case)
        lost = blame and blame["label"] == AttributionLabel.MEMORY_FAILURE.value
        if not lost or blame is None or store is None or not measured(case):
            continue
        quotes = store.quotes(blame["evidence"], blame["episode"])
        if quotes and store.raw["items"]:
            yield case, store, quotes


Scan = tuple[int, list[Hit]]


def overflow(records: UserRecords) -> Scan:
    """Whole-store verdicts whose store did not fit the reader."""
    hits = []
    for case in records.whole.values():
        if case["verdict"].get("reason") != "store_overflow":
            continue
        store = records.store(case)
        items, chars = (len(store.raw["items"]), store.chars) if store else (0, 0)
        published = case["verdict"]["score"]
        said = "left unscored" if published is None else f"scored {published:g} all the same"
        facts = (("Store", f"{items:,} items, {chars:,} characters"), ("Verdict", said))
        hits.append(Hit(records.key(case, -chars), case, facts))
    return len(records.whole), hits


def query_mismatch(records: UserRecords) -> Scan:
    """Recovered from the whole store, not by top-k, and an item left out holds the answer."""
    total, hits = 0, []
    for whole, top in records.both():
        total += 1
        store = records.store(whole)
        wanted = words(whole["verdict"]["label"])
        if not recovered(whole) or recovered(top) or store is None or len(wanted) < MIN_WORDS:
            continue
        entry = store.raw["retrieved"].get(top["target"], {"hits": []})
        found = entry["hits"][: top["k"]]
        near = max((share_held(wanted, _hit_text(store, hit)) for hit in found), default=0)
        inside = {hit["at"] for hit in found if "at" in hit}
        out = [(s, at) for s, at in store.best(wanted)[: len(inside) + 1] if at not in inside]
        if not out or out[0][0] < HELD or out[0][0] <= near:
            continue
        facts = (
            ("Words of the whole store's answer", ", ".join(wanted)),
            ("Held by an item that was not retrieved", f"{out[0][0]:.0%}"),
            ("Held by a retrieved item, at most", f"{near:.0%}"),
            ("The whole store's answer", str(whole["verdict"]["label"])),
        )
        hits.append(Hit(records.key(top, near - out[0][0]), top, facts, (out[0][1],)))
    return total, hits


def _hit_text(store: Store, hit: Row) -> str:
    return str(store.raw["items"][hit["at"]]["text"] if "at" in hit else hit.get("text") or "")


def vaguer(records: UserRecords) -> Scan:
    """Disclosed and quoted, and no stored item holds half of the quoted words."""
    total, hits = 0, []
    for case, store, quotes in _disclosed(records):
        wanted = words(" ".join(quotes))
        if len(wanted) < MIN_WORDS:
            continue
        total += 1
        share, at = next(iter(store.best(wanted)), (0.0, 0))
        if share < HELD:
            facts = (
                ("Words of the disclosure", ", ".join(wanted)),
                ("Held by the nearest stored item", f"{share:.0%}"),
            )
            hits.append(Hit(records.key(case, share, -len(wanted)), case, facts, (at,)))
    return total, hits


def unread(records: UserRecords) -> Scan:
    """Disclosed and stored word for word, in reach of the reader, and yet not recovered."""
    total, hits = 0, []
    for case, store, quotes in _disclosed(records):
        total += 1
        longest = max(quotes, key=len)
        wanted = words(longest)
        exact = [
            at
            for share, at in store.best(wanted)
            if share == 1 and plain(longest) in plain(store.raw["items"][at]["text"])
        ]
        if exact:
            facts = (("Stored word for word", longest),)
            rank = len(store.raw["items"])
            hits.append(Hit(records.key(case, rank, -len(longest)), case, facts, tuple(exact[:2])))
    return total, hits


OPPOSITES = tuple(
    (frozenset(first.split()), frozenset(second.split()))
    for first, second in (
        (
            "brief concise short terse succinct minimal compact",
            "detailed long lengthy thorough elaborate comprehensive extensive exhaustive",
        ),
        (
            "structured organized organised orderly systematic planned",
            "unstructured disorganized disorganised chaotic spontaneous improvised loose",
        ),
        ("direct blunt straightforward frank", "indirect tactful diplomatic roundabout"),
        ("fast quick rapid hurried", "slow gradual unhurried patient"),
        (
            "strong advanced expert skilled proficient capable excels",
            "weak beginner novice poor limited struggles basic",
        ),
        ("cautious careful wary prudent", "bold adventurous impulsive reckless daring"),
        (
            "independent autonomous independently self-reliant",
            "dependent guided supervised reliant",
        ),
        ("outgoing extroverted sociable", "introverted reserved solitary withdrawn"),
        ("formal", "informal casual"),
        (
            "overestimates overconfident overrates",
            "underestimates underconfident underrates",
        ),
        ("optimistic hopeful", "pessimistic hopeless"),
        ("confident self-assured", "insecure unsure doubtful hesitant"),
        ("flexible adaptable", "rigid inflexible"),
        ("calm steady composed", "anxious panicky nervous agitated"),
    )
)
"""Words that say the two ends of an axis."""
_DENIES = frozenset(
    {"not", "no", "never", "without", "hardly", "rarely", "less", "rather", "than"}
    | {"instead", "avoids", "avoid", "dislikes", "nor", "over"}
)
_TOKEN = re.compile(r"[^\W\d_]+(?:-[^\W\d_]+)*")


def _ends(text: str) -> dict[int, set[str]]:
    """Words of a text by the signed number of their axis; a denied word says nothing."""
    tokens = _TOKEN.findall(text.lower())
    found: dict[int, set[str]] = {}
    for place, token in enumerate(tokens):
        if _DENIES.intersection(tokens[max(0, place - 2) : place]):
            continue
        for number, (first, second) in enumerate(OPPOSITES, 1):
            if token in first:
                found.setdefault(number, set()).add(token)
            elif token in second:
                found.setdefault(-number, set()).add(token)
    return found


def polarity(records: UserRecords) -> Scan:
    """The answer says the one end of an axis and the target the other."""
    total, hits = 0, []
    truths = {name: _ends(str(row.get("short") or "")) for name, row in records.targets.items()}
    for case in records.cases:
        truth, said = truths.get(case["target"]), case["verdict"]["label"]
        if not truth or not said or not measured(case) or _is_event(case):
            continue
        total += 1
        ends = _ends(said)
        against = [n for n in truth if -n in ends and n not in ends and -n not in truth]
        if against:
            facts = tuple(
                ("Opposite ends", f"target: {_list(truth[n])}; answer: {_list(ends[-n])}")
                for n in against
            )
            hits.append(Hit(records.key(case, -case["verdict"]["score"]), case, facts))
    return total, hits


def _is_event(case: Row) -> bool:
    """What happened has no axis."""
    return str(case["target"]).startswith(f"{Category.EPISODIC.value}/")


def _list(found: Iterable[str]) -> str:
    return ", ".join(sorted(found))


def turn_budget(records: UserRecords) -> Scan:
    """The episode ran out of turns before the user disclosed the target."""
    total, hits = 0, []
    for case in records.whole.values():
        store, blame = records.store(case), case.get("attribution") or {}
        episode = _episode(store, case)
        if episode is None or episode.get("end") != "max_turns":
            continue
        total += 1
        if blame.get("disclosed") is False:
            turns = len(episode["turns"])
            facts = (("Episode", f"ended at max_turns after {turns} turns, not disclosed"),)
            hits.append(Hit(records.key(case, -turns), case, facts))
    return total, hits


def _episode(store: Store | None, case: Row) -> Row | None:
    if store is None:
        return None
    number = (case.get("attribution") or {}).get("episode")
    episodes: dict[int, Row] = store.raw["episodes"]
    if number in episodes:
        return episodes[number]
    return next((e for e in episodes.values() if e.get("target") == case["target"]), None)


episode_of = _episode


def refused(records: UserRecords) -> Scan:
    """The oracle said that the task cannot invite the target, and it was recovered."""
    total, hits = 0, []
    for case in records.whole.values():
        oracle = records.targets.get(case["target"], {}).get("oracle") or {}
        if oracle.get("can_invite") is not False or not measured(case):
            continue
        total += 1
        if recovered(case):
            facts = (("The oracle", str(oracle.get("why") or "gave no reason")),)
            hits.append(Hit(records.key(case, -case["verdict"]["score"]), case, facts))
    return total, hits


def drowned(records: UserRecords) -> Scan:
    """Recovered by top-k and not from the whole store, which holds the same items and more."""
    total, hits = 0, []
    for whole, top in records.both():
        total += 1
        if not recovered(top) or recovered(whole):
            continue
        store = records.store(whole)
        chars = store.chars if store else 0
        facts = (
            ("The answer from top-k", str(top["verdict"]["label"])),
            ("Store", f"{chars:,} characters"),
        )
        gap = whole["verdict"]["score"] - top["verdict"]["score"]
        hits.append(Hit(records.key(whole, gap, -chars), whole, facts))
    return total, hits


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule: what it holds for, out of what, and what its cases are ranked by."""

    id: str
    title: str
    says: str
    of: str
    ranked_by: str
    scan: Callable[[UserRecords], Scan]


RULES = (
    Rule(
        "overflow", "Overflow",
        "The store did not fit the reader's window, so nothing was measured.",
        "whole-store verdicts", "characters of the store, most first", overflow,
    ),
    Rule(
        "query-mismatch", "Query mismatch",
        "Recovered from the whole store and not by the largest k, while an item that was not "
        "retrieved holds at least half of the words of the whole store's answer, and more of "
        "them than every retrieved item.",
        "targets measured both ways", "how much more that item holds, most first", query_mismatch,
    ),
    Rule(
        "vaguer", "Write-side abstraction",
        "Disclosed in a reply of the user and lost, and no stored item holds half of the words "
        "of that disclosure (three or more): what was stored is vaguer.",
        "disclosed whole-store losses with a quotation", "share held, least first", vaguer,
    ),
    Rule(
        "unread", "Stored and not read",
        "Disclosed, stored word for word and given to the reader with the whole store, and yet "
        "not recovered.",
        "disclosed whole-store losses with a quotation", "items of the store, fewest first", unread,
    ),
    Rule(
        "polarity", "Polarity",
        "The answer says one end of an axis and the target the other, by a list of opposite "
        "words; a denied word says nothing. Those that the judge let pass come first.",
        "measured verdicts whose target has such a word", "score, highest first", polarity,
    ),
    Rule(
        "turn-budget", "Turn budget",
        "The episode ended at max_turns, and the user had not disclosed the target.",
        "whole-store verdicts of such episodes", "turns, most first", turn_budget,
    ),
    Rule(
        "refused", "Refused by the oracle, recovered",
        "The oracle said that the task cannot invite the target, and the whole store gave it "
        "back all the same.",
        "measured whole-store verdicts of refused targets", "score, highest first", refused,
    ),
    Rule(
        "drowned", "Lost in the whole store",
        "Recovered by the largest k and not from the whole store, though that holds more.",
        "targets measured both ways", "how far the scores are apart, most first", drowned,
    ),
)  # fmt: skip
"""All rules, in the order of the page."""
