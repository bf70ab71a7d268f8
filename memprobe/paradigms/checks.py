"""The checks of a suite: every rule of the design that a text can be held to.

Rules give problems instead of raising, so that an author sees all that is wrong
at once. `error` breaks the protocol; `warning` is a place to look.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from memprobe.errors import DatasetError
from memprobe.paradigms import content_checks, design_checks
from memprobe.paradigms.mentions import mentions, opening, similar_pairs
from memprobe.paradigms.problems import Problem, Severity
from memprobe.paradigms.protocol import PLANS, TIERS, Planned
from memprobe.paradigms.spec import Episode, Session, Spec, in_order
from memprobe.paradigms.suite import episode_files, load_episode

SIMILAR_OPENINGS = 0.65
SHORTCUT_BOUND = 0.75
"""Share of current values that a rule without understanding may find."""
_LONG = 60
__all__ = ["Problem", "Severity", "check_episode", "check_session", "check_suite", "validate_suite"]


def check_episode(episode: Episode) -> list[Problem]:
    """All rules of one episode: design, counts, order, times, texts, gold, probes."""
    return [*design_checks.check(episode), *content_checks.check(episode)]


def check_session(spec: Spec, index: int, session: Session) -> list[Problem]:
    """The rules that one session can be held to by itself (`index` from 0 in the episode)."""
    return [
        *design_checks.check_session(spec, index, session),
        *content_checks.check_session(spec, index, session),
    ]


def _openings(episodes: Sequence[Episode]) -> list[Problem]:
    where = [(e.id, i) for e in episodes for i in range(len(e.sessions))]
    texts = [opening(s.dialogue[0].content) for e in episodes for s in e.sessions]
    found = []
    for j, i, ratio in similar_pairs(texts, SIMILAR_OPENINGS):
        (other, k), (episode, session) = where[j], where[i]
        found.append(
            Problem(
                "error" if ratio == 1.0 and len(texts[i]) >= 4 else "warning",
                episode,
                session,
                "opening",
                f"opens like {other} session {k} (similarity {ratio:.2f}): "
                f"{' '.join(texts[i][:8])!r}",
                "open one of the two in other words, on another thought",
            )
        )
    return found


def _repeated(episodes: Sequence[Episode]) -> list[Problem]:
    first: dict[str, tuple[str, int]] = {}
    found = []
    for e in episodes:
        for i, session in enumerate(e.sessions):
            for turn in session.dialogue:
                text = " ".join(turn.content.casefold().split())
                if len(text) < _LONG or turn.role == "tool_output":
                    continue
                if text in first and first[text] != (e.id, i):
                    other, k = first[text]
                    message = f"a message of {other} session {k} again: {text[:50]!r}"
                    found.append(Problem("error", e.id, i, "repeated", message, "write it anew"))
                first.setdefault(text, (e.id, i))
    return found


def latest_value(episode: Episode) -> str:
    """The value of the fact that was mentioned last (the first listed in a tie)."""
    spec = episode.spec
    values = (spec.initial_value, spec.new_value, *spec.distractor_values)
    best, last = spec.initial_value, -1
    for value in values:
        seen = [i for i, s in enumerate(episode.sessions) if mentions(value, s.text())]
        if seen and seen[-1] > last:
            best, last = value, seen[-1]
    return best


def frequent_value(episode: Episode) -> str:
    """The value of the fact that was mentioned most (the first listed in a tie)."""
    spec = episode.spec
    values = (spec.initial_value, spec.new_value, *spec.distractor_values)
    whole = "\n".join(s.text() for s in episode.sessions)
    return max(values, key=lambda v: mentions(v, whole))


def _shortcuts(name: str, episodes: Sequence[Episode]) -> list[Problem]:
    found = []
    for rule, pick in (("last", latest_value), ("most often", frequent_value)):
        right = sum(pick(e) == e.spec.gold.current_value for e in episodes)
        if right > SHORTCUT_BOUND * len(episodes):
            message = f"the value mentioned {rule} is the current one in {right}/{len(episodes)}"
            fix = "vary where and how often values are mentioned"
            found.append(Problem("warning", name, None, "shortcut", message, fix))
    return found


def _planned(plan: dict[str, Planned], episodes: Sequence[Episode]) -> list[Problem]:
    have = {e.id: e.spec for e in episodes}
    fillers = {e.id: sum(s.session_type.filler for s in e.sessions) for e in episodes}
    domains = in_order(wanted.domain for wanted in plan.values())
    found = []
    for name, wanted in plan.items():
        if name not in have:
            message = f"missing: {wanted.condition}, {wanted.domain}, split {wanted.split}"
            found.append(Problem("error", name, None, "composition", message, "write the episode"))
            continue
        for field in ("condition", "domain", "split"):
            is_, should = getattr(have[name], field), getattr(wanted, field)
            if is_ != should:
                message = f"spec.{field} is {is_}, the plan has {should}"
                fix = "follow the composition table"
                if field == "domain" and is_ not in domains:
                    listed = ", ".join(domains)
                    message += f"; {is_} is no domain of the plan ({listed})"
                    fix = f"make it {should}, or check the suite with --plan none"
                found.append(Problem("error", name, None, "composition", message, fix))
        # A plan's episodes are of core length; a suite without a plan may have others.
        if fillers[name] < TIERS["core"]:
            message = f"{fillers[name]} fillers, an episode of the plan has core length"
            fix = f"{TIERS['core']} before the perturbation"
            found.append(Problem("error", name, None, "composition", message, fix))
    for name in sorted(set(have) - set(plan)):
        message, fix = "no episode of the plan", "take it out or give it a planned id"
        found.append(Problem("error", name, None, "composition", message, fix))
    return found


def check_suite(
    name: str, episodes: Sequence[Episode], plan: dict[str, Planned] | None = None
) -> list[Problem]:
    """The rules of each episode, then those across episodes; `plan` asks for a composition."""
    found = [p for e in episodes for p in check_episode(e)]
    for episode, n in Counter(e.id for e in episodes).items():
        if n > 1:
            message = f"{n} files have this id"
            found.append(Problem("error", episode, None, "id", message, "give each its own id"))
    found += _openings(episodes)
    found += _repeated(episodes)
    if len(episodes) >= 12:
        found += _shortcuts(name, episodes)
    if plan is not None:
        found += _planned(plan, episodes)
    return found


@dataclass(frozen=True, slots=True)
class Validation:
    """A folder's problems, the episodes that could be read, and the plan they were held to."""

    problems: tuple[Problem, ...]
    episodes: tuple[Episode, ...]
    plan: str | None

    def count(self, severity: Severity) -> int:
        """Problems of a severity."""
        return sum(p.severity == severity for p in self.problems)


def inspect_suite(folder: Path, plan: str | Literal["auto"] | None = "auto") -> Validation:
    """Check a folder's `*.json`. A file that cannot be read is a problem, not an exception.

    `plan` names the composition to hold it to (`protocol.PLANS`); `auto` takes the
    plan of the folder's own name, when there is one. Raises `DatasetError` for a
    folder without files and for an unknown plan.
    """
    if plan == "auto":
        plan = folder.name if folder.name in PLANS else None
    if plan is not None and plan not in PLANS:
        raise DatasetError(f"no plan {plan!r}; there are {', '.join(PLANS)}")
    problems: list[Problem] = []
    episodes: list[Episode] = []
    for path in episode_files(folder):
        try:
            episode = load_episode(path)
        except DatasetError as error:
            message = str(error).removeprefix(f"{path}: ")
            fix = "correct the named fields"
            problems.append(Problem("error", path.stem, None, "file", message, fix))
            continue
        episodes.append(episode)
        if episode.id != path.stem:
            message = f"the file {path.name} holds episode {episode.id}"
            fix = "name the file after its episode"
            problems.append(Problem("error", episode.id, None, "id", message, fix))
    problems += check_suite(folder.name, episodes, PLANS[plan] if plan else None)
    return Validation(tuple(problems), tuple(episodes), plan)


def validate_suite(folder: Path) -> list[Problem]:
    """All problems of a folder, held to the plan of its name when there is one."""
    return list(inspect_suite(folder).problems)
