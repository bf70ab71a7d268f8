"""What speaks against a verdict in the case browser: other judges, and the label's direction."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from memprobe.agreement import RECOVERED

Row = dict[str, Any]
CHECKS = ("judges disagree", "opposite, yet 0.5 or more", "same direction, yet 0")
"""The browser's filters, by bit of a case's `checks`."""
_FAR = 0.5


def _item(row: Row) -> tuple[Any, ...]:
    return tuple(row[n] for n in ("epoch", "access_mode", "k", "category", "dimension", "label"))


class Checks:
    """Other judges' verdicts and polarity, by what was judged, of one system's store."""

    def __init__(self, verdicts: Sequence[Row], polarity: Sequence[Row]) -> None:
        self._verdicts: defaultdict[tuple[Any, ...], list[Row]] = defaultdict(list)
        for row in verdicts:
            if row["label"] is not None:
                self._verdicts[_item(row)].append(row)
        self._polarity: defaultdict[tuple[Any, ...], list[Row]] = defaultdict(list)
        for row in polarity:
            self._polarity[_item(row)].append(row)

    def of(self, row: Row) -> Mapping[str, Any]:
        """The parts of a case: `others`, `polarity` and `checks`; what is empty is left out."""
        others = [
            {
                "layer": other["layer"],
                "score": other["score"],
                "why": other["judge_reason"],
                "model": other["judge_model"],
            }
            for other in self._verdicts.get(_item(row), ())
            if other["layer"] != row["layer"] and other["judge_model"] != row["judge_model"]
        ]
        directions = [
            {
                name: found[name]
                for name in (
                    "method",
                    "polarity",
                    "target_pole",
                    "label_pole",
                    "target_said",
                    "label_said",
                    "reason",
                )
            }
            for found in self._polarity.get(_item(row), ())
        ]
        said = {direction["polarity"] for direction in directions}
        score = row["score"]
        flags = (
            any(apart(score, other["score"]) for other in others),
            score is not None and score >= _FAR and "opposite" in said,
            score == 0 and "agrees" in said,
        )
        checks = sum(1 << bit for bit, flag in enumerate(flags) if flag)
        parts = {"others": others, "polarity": directions, "checks": checks}
        return {name: value for name, value in parts.items() if value}


def apart(first: float | None, second: float | None) -> bool:
    """Whether two scores disagree: sides of 0.75, or half the scale; unscored ones do not."""
    if first is None or second is None:
        return False
    return (first >= RECOVERED) is not (second >= RECOVERED) or abs(first - second) >= _FAR
