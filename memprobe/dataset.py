"""The recovery data set: users, their hidden banks, their tasks, and the dimension pool.

The file format is the same for bundled users and for users that
`memprobe generate` writes; `format` names its version.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from memprobe.errors import DatasetError
from memprobe.types import Category, Frozen

USER_FORMAT: Literal["memprobe.recovery.user/1"] = "memprobe.recovery.user/1"


Text = Annotated[str, Field(min_length=1)]


class Dimension(Frozen):
    """An axis-neutral question about a person, e.g. `time_management_skill`."""

    name: Text
    axis: Text
    examples: tuple[str, ...]
    framework: str


class PoolCategory(Frozen):
    """A category with its boundary text and the number of targets a user gets from it."""

    name: Category
    slots: Annotated[int, Field(gt=0)]
    boundary: Text
    dimensions: tuple[Dimension, ...]


class Pool(BaseModel):
    """The 141 dimensions that targets are drawn from."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    format: Literal["memprobe.recovery.pool/1"]
    origin: str
    categories: tuple[PoolCategory, ...]

    def category(self, name: Category) -> PoolCategory:
        """The category's entry; every category has one."""
        return next(c for c in self.categories if c.name == name)

    def find(self, dimension: str) -> tuple[PoolCategory, Dimension] | None:
        """The category and entry of a dimension name, or None when it is not in the pool."""
        for category in self.categories:
            for entry in category.dimensions:
                if entry.name == dimension:
                    return category, entry
        return None


class AgeInfo(Frozen):
    age: Annotated[int, Field(ge=7, le=110)]
    age_group: Text


class Location(Frozen):
    country: Text
    city: Text


class CareerInfo(Frozen):
    status: str


class PersonalValues(Frozen):
    values_orientation: Text


class LifeAttitude(Frozen):
    attitude: Text
    attitude_details: Text
    coping_mechanism: Text


class PersonalStory(Frozen):
    personal_story: Text


class Interests(Frozen):
    interests: tuple[Text, ...]


class Profile(Frozen):
    """A persona, in the published field layout."""

    age_info: AgeInfo
    gender: Text
    location: Location
    career_info: CareerInfo
    personal_values: PersonalValues
    life_attitude: LifeAttitude
    personal_story: PersonalStory
    interests: Interests


class BankEntry(Frozen):
    """One hidden target: what is true of this user on one dimension."""

    dimension: Text
    short: Text
    explanation: Text


class CriticVerdict(Frozen):
    """What a blind critic, shown the task and the category only, makes of a task."""

    inferred_trait: str
    verdict: Literal["neutral", "fishing"]
    why: str


class Script(Frozen):
    """What the embedded profile plays for one task, in the user's own voice.

    `disclosures` are a direct and an indirect reveal of the target, `evasion`
    reveals nothing, `reply` and `followup` are the assistant's two answers.
    """

    disclosures: tuple[Text, Text]
    evasion: Text
    reply: Text
    followup: Text


class TaskEntry(Frozen):
    """The leak-controlled request of one target.

    `planted` marks what is wrong on purpose: `poor_task` cannot invite its
    target, `withheld` has a user who never lets it show.
    """

    task: Text
    rationale: Text
    target_category: Category
    target_dimension: Text
    target_short: Text
    pipeline_note: str = ""
    critic: tuple[CriticVerdict, ...] = ()
    script: Script | None = None
    planted: Literal["poor_task", "withheld"] | None = None


class User(Frozen):
    """A persona with its hidden bank and its tasks, as stored in one file."""

    format: Literal["memprobe.recovery.user/1"] = USER_FORMAT
    user_id: Text
    profile: Profile
    memory_bank: dict[Category, tuple[BankEntry, ...]]
    tasks: tuple[TaskEntry, ...]
    closings: tuple[Text, ...] = ()
    generation: dict[str, str] = Field(default_factory=dict)

    def targets(self) -> list[tuple[Category, BankEntry]]:
        """All targets in the order of the categories."""
        return [(c, e) for c in Category for e in self.memory_bank.get(c, ())]


class Dataset(Frozen):
    """Users with the pool they were drawn from; `digest` identifies the exact content."""

    name: str
    users: tuple[User, ...]
    pool: Pool
    digest: str

    def user(self, user_id: str) -> User:
        """The user of that id; raises `DatasetError` when there is none."""
        for user in self.users:
            if user.user_id == user_id:
                return user
        raise DatasetError(f"no user {user_id!r} in data set {self.name!r}")


def content_digest(*parts: bytes) -> str:
    """sha256 over length-prefixed parts, so that no two lists of parts collide by joining."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8, "big"))
        digest.update(part)
    return digest.hexdigest()


def explain(error: ValidationError) -> str:
    """A pydantic error as one line a field: where, what is wrong."""
    return "; ".join(
        f"{'.'.join(str(p) for p in e['loc']) or '(top)'}: {e['msg']}" for e in error.errors()
    )


def _read_json(path: Path) -> tuple[bytes, object]:
    try:
        raw = path.read_bytes()
        return raw, json.loads(raw)
    except FileNotFoundError:
        raise DatasetError(f"{path}: no such file") from None
    except ValueError as error:
        raise DatasetError(f"{path}: not valid JSON ({error})") from error


def load_user(path: Path) -> User:
    """Read one user file; raises `DatasetError` naming the file and the field."""
    _, parsed = _read_json(path)
    try:
        return User.model_validate(parsed)
    except ValidationError as error:
        raise DatasetError(f"{path}: {explain(error)}") from error


def load_pool(path: Path) -> Pool:
    """Read the dimension pool; raises `DatasetError` naming the file and the field."""
    _, parsed = _read_json(path)
    try:
        return Pool.model_validate(parsed)
    except ValidationError as error:
        raise DatasetError(f"{path}: {explain(error)}") from error


def _check_measurable(user: User, where: Path) -> None:
    """Raise `DatasetError` for a user whom no run could measure.

    A dimension names a target everywhere: in queries, verdicts and the case browser.
    """
    names = [entry.dimension for _, entry in user.targets()]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise DatasetError(
            f"{where}: user {user.user_id!r} has more than one target of dimension "
            f"{', '.join(twice)}; a dimension is one target of a user, in one category"
        )
    for what, found in (("target in its memory_bank", names), ("task", user.tasks)):
        if not found:
            raise DatasetError(f"{where}: user {user.user_id!r} has no {what}")


def load_dataset(folder: Path, pool: Path | None = None) -> Dataset:
    """Read `folder/users/*.json` and `folder/pool.json` (or `pool`).

    Raises `DatasetError` for a file that is malformed and for a user who cannot be measured.

    The digest covers the users in id order and the pool, so that renaming or
    reordering files changes nothing and a changed word changes everything.
    """
    pool_path = pool or folder / "pool.json"
    paths = sorted((folder / "users").glob("*.json"))
    if not paths:
        raise DatasetError(f"{folder}: no users/*.json; is this a recovery data set?")
    users = sorted((load_user(path) for path in paths), key=lambda u: u.user_id)
    ids = [u.user_id for u in users]
    twice = sorted({i for i in ids if ids.count(i) > 1})
    if twice:
        raise DatasetError(f"{folder}: user ids occur twice: {', '.join(twice)}")
    for user in users:
        _check_measurable(user, folder)
    loaded = load_pool(pool_path)
    digest = content_digest(
        loaded.model_dump_json().encode(), *(u.model_dump_json().encode() for u in users)
    )
    return Dataset(name=folder.name, users=tuple(users), pool=loaded, digest=digest)
