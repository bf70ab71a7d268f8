"""What a rater is asked and may answer, and how a cell of a spreadsheet is made safe."""

from __future__ import annotations

import re
from dataclasses import dataclass

from memprobe.metrics import SCALE
from memprobe.types import AttributionLabel

OK_SCORE = 0.75
UNSURE = "unsure"


@dataclass(frozen=True, slots=True)
class Choice:
    """One answer: its value in the sheet, the key that gives it in the form, what it means."""

    value: str
    key: str
    says: str


SCORES = (
    Choice("0", "1", "Wrong, opposite, about something else, or nothing."),
    Choice("0.25", "2", "Touches the subject but misses the point."),
    Choice("0.5", "3", "Partly right; part of the point is missing, or it is vague."),
    Choice("0.75", "4", "Right in substance; a specific is missing or slightly off."),
    Choice("1", "5", "The same in substance, with the specifics that matter."),
    Choice(UNSURE, "0", "I cannot tell."),
)
"""The judge's rubric (prompt `judge`)."""

CAUSES = (
    Choice(
        AttributionLabel.TASK_DESIGN_FAILURE.value, "t",
        "The request leaves no room for it: no ordinary conversation about it could have "
        "brought it up.",
    ),
    Choice(
        AttributionLabel.MEMORY_FAILURE.value, "m",
        "The user's own messages show it, plainly or through what they say; it was lost later.",
    ),
    Choice(
        AttributionLabel.AGENT_ELICITATION_FAILURE.value, "a",
        "It was not shown, and the assistant gave no real occasion to show it.",
    ),
    Choice(
        AttributionLabel.SIMULATOR_TOO_STRICT.value, "s",
        "It was not shown, although the assistant gave a fair occasion: the user passed it over.",
    ),
    Choice(AttributionLabel.UNCLASSIFIED.value, "c", "It was not shown; why cannot be said."),
    Choice(UNSURE, "x", "I cannot tell."),
)  # fmt: skip
"""The attribution step's labels (prompts `oracle`, `disclosure`, `subclass`)."""

CAUSE_ORDER = (
    AttributionLabel.OK.value,
    *(choice.value for choice in CAUSES if choice.value != UNSURE),
)

QUESTION = (
    "score: how much of what is true does the recovered text say? 0, 0.25, 0.5, 0.75 or 1, or "
    "unsure. cause, only for a score under 0.75: where was it lost? "
    + ", ".join(choice.value for choice in CAUSES[:-1])
    + ", or unsure; for 0.75 and 1 leave it empty."
)

ASKED = (
    "dimension",
    "category",
    "true_in_short",
    "true_in_full",
    "task",
    "transcript",
    "recovered",
    "question",
)
"""What a rater reads; the sheet's hash of an item is over these."""
ANSWERS = ("score", "cause", "note", "rater")
COLUMNS = ("id", *ASKED, *ANSWERS)

CELL = 32_000
"""Characters of a cell: a spreadsheet program cuts at 32,767 without a word."""
CUT = "\n[cut here for spreadsheet programs; the form has the whole text]"

_TRIGGERS = frozenset("=+-@\t\r\n'|%＝＋－＠")
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")


def cell(text: str) -> str:
    """A text as it stands in the CSV: bounded, without control characters, never a formula."""
    text = _CONTROL.sub("\N{REPLACEMENT CHARACTER}", text)
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    if len(text) > CELL:
        text = text[: CELL - len(CUT)] + CUT
    return guard(text)


def guard(text: str) -> str:
    """A leading apostrophe before what a spreadsheet program could take for a formula."""
    head = text.lstrip(" ")[:1]
    return f"'{text}" if head in _TRIGGERS and head else text


def unguard(text: str) -> str:
    """The text that `guard` was given."""
    return text[1:] if text.startswith("'") else text


def settled(text: str) -> str:
    """A cell as it is compared: as spreadsheet programs may save it without an edit.

    Without leading apostrophes, line ends unified, no blanks at a line's end.
    """
    lines = text.lstrip("' ").replace("\r\n", "\n").replace("\r", "\n").split("\n")
    return "\n".join(line.rstrip() for line in lines).strip()


_NUMBER = re.compile(r"[01](?:[.,][0-9]{1,4})?")


def score_of(text: str) -> float | None:
    """A score on the scale, with a point or a comma; None for anything else."""
    if not _NUMBER.fullmatch(text):
        return None
    value = float(text.replace(",", "."))
    return value if value in SCALE else None
