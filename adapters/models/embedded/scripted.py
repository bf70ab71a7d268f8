"""Plays user and assistant from what was written for every bundled task.

Whether a target shows, plainly, through a detail, late or never, is drawn per
user, target and replicate from the run's seed; the words are the author's.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from memprobe.calendar import draw
from memprobe.dataset import Script, TaskEntry, User
from memprobe.errors import DatasetError
from memprobe.types import Category, FeedbackType
from prompts.answers import Feedback


class Play(StrEnum):
    """How a scripted user lets the target show."""

    DIRECT = "direct"
    INDIRECT = "indirect"
    LATE = "late"
    BOTH = "both"
    NEVER = "never"


_SHARES = (
    (Play.DIRECT, 0.40),
    (Play.INDIRECT, 0.70),
    (Play.LATE, 0.82),
    (Play.BOTH, 0.90),
    (Play.NEVER, 1.0),
)

_REACTION = {
    Category.SKILL: FeedbackType.ADD_CONTEXT,
    Category.KNOWLEDGE: FeedbackType.EXPOSE_GAP,
    Category.EPISODIC: FeedbackType.ADD_CONTEXT,
    Category.SELF_MODEL: FeedbackType.CORRECTION,
    Category.PREFERENCE: FeedbackType.TOO_DEEP,
}


def play_of(seed: int, user_id: str, task: TaskEntry, replicate: int = 0) -> Play:
    """How this user plays this task."""
    if task.planted is not None:
        return Play.NEVER
    point = draw("play", seed, user_id, task.target_dimension, replicate)
    return next(play for play, bound in _SHARES if point < bound)


@dataclass(frozen=True, slots=True)
class _Scene:
    user: User
    task: TaskEntry
    script: Script


class Stage:
    """All scripted scenes of some users, found by the text of the task.

    Raises `DatasetError` when two scenes share their text.
    """

    def __init__(self, users: Iterable[User], seed: int) -> None:
        self._seed = seed
        self._scenes: dict[str, _Scene] = {}
        for user in users:
            for task in user.tasks:
                if task.script is not None:
                    self._add(_Scene(user, task, task.script))

    def _add(self, scene: _Scene) -> None:
        other = self._scenes.setdefault(scene.task.task, scene)
        if other is not scene:
            raise DatasetError(
                f"{other.user.user_id} and {scene.user.user_id} share a scripted task, and one "
                f"would be played for the other: {scene.task.task[:80]!r}"
            )

    def knows(self, task: str) -> bool:
        """Whether a script was written for this task."""
        return task in self._scenes

    def reply(self, task: str, turn: int) -> str:
        """The assistant's answer at a turn (from 1): the first, then the follow-up."""
        script = self._scenes[task].script
        return script.reply if turn <= 1 else script.followup

    def feedback(self, task: str, turn: int, replicate: int = 0) -> Feedback:
        """The user's reaction to the reply of a turn (from 1)."""
        scene = self._scenes[task]
        play = play_of(self._seed, scene.user.user_id, scene.task, replicate)
        direct, indirect = scene.script.disclosures
        if turn <= 1:
            opening = {
                Play.DIRECT: direct,
                Play.INDIRECT: indirect,
                Play.BOTH: indirect,
            }.get(play, scene.script.evasion)
            shows = opening is not scene.script.evasion
            reaction = _REACTION[scene.task.target_category] if shows else FeedbackType.FOLLOWUP
            return Feedback(feedback_type=reaction, text=opening)
        closing = self._closing(scene, replicate)
        text = f"{direct} {closing}" if play in (Play.LATE, Play.BOTH) else closing
        return Feedback(feedback_type=FeedbackType.SATISFIED, text=text)

    def _closing(self, scene: _Scene, replicate: int) -> str:
        point = draw(
            "closing", self._seed, scene.user.user_id, scene.task.target_dimension, replicate
        )
        return scene.user.closings[int(point * len(scene.user.closings))]
