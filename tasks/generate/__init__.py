"""New users by a model: persona, hidden bank, leak-controlled tasks.

The source is the published procedure (arXiv 2606.24595, appendix D) with its
gaps closed: counts are checked, an edit is criticised again, no category or
check is left out in silence, and everything is drawn from one seed.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import prompts
from memprobe.chat import ChatModel
from memprobe.dataset import (
    USER_FORMAT,
    BankEntry,
    Pool,
    Profile,
    TaskEntry,
    User,
    load_pool,
    load_user,
)
from memprobe.errors import DatasetError, UsageError
from memprobe.outcomes import Reason
from memprobe.ports import Embedder
from memprobe.types import Category, Role
from memprobe.validation import validate_similarity, validate_user
from storage.files import LocalFiles
from tasks.card import write_card
from tasks.generate.asking import Questioner, UserFailed
from tasks.generate.bank import category_order, write_category
from tasks.generate.persona import write_profile
from tasks.generate.tasks import Workbench, write_task

EDIT_BUDGET = 3
PROMPTS = (
    "persona_values",
    "persona_attitude",
    "persona_story",
    "persona_interests",
    "bank_category",
    "task_write",
    "task_critic",
    "task_edit",
)
ROLES = (Role.GENERATOR, Role.CRITIC, Role.EDITOR)


@dataclass(frozen=True, slots=True)
class Progress:
    """Where one user stands: `done` of `total` steps, the last of which was `step`."""

    user_id: str
    step: str
    done: int
    total: int


@dataclass(frozen=True, slots=True)
class Failure:
    """A user that could not be finished; `resumable` as in `UserFailed`."""

    user_id: str
    step: str
    reason: Reason
    detail: str
    resumable: bool


@dataclass(frozen=True, slots=True)
class GenerationReport:
    """What a generation came to.

    `skipped` were complete before; `other_settings` are those of them that were
    made with another model, seed or prompt. `calls` counts usable answers,
    `replayed` those of them that the ledger gave.
    """

    out: Path
    written: tuple[str, ...]
    skipped: tuple[str, ...]
    other_settings: tuple[str, ...]
    failed: tuple[Failure, ...]
    calls: int
    replayed: int
    digest: str | None

    @property
    def complete(self) -> bool:
        return not self.failed


@dataclass(slots=True)
class _Draft:
    """A user in the making."""

    profile: Profile | None = None
    bank: dict[Category, tuple[BankEntry, ...]] = field(default_factory=dict)
    tasks: list[TaskEntry] = field(default_factory=list)


def provenance(chat: ChatModel, seed: int, edit_budget: int) -> dict[str, str]:
    """What a generated user was made with, as its file records it."""
    record = {
        "method": "model",
        "model": chat.model_for(Role.GENERATOR),
        "critic_model": chat.model_for(Role.CRITIC),
        "editor_model": chat.model_for(Role.EDITOR),
        "seed": str(seed),
        "edit_budget": str(edit_budget),
    }
    for name in PROMPTS:
        record[f"prompt.{name}"] = prompts.load(name).identity
    return record


def _place_pool(files: LocalFiles, pool: Pool) -> None:
    if files.size("pool.json") is None:
        text = json.dumps(pool.model_dump(mode="json"), ensure_ascii=False, indent=1)
        files.write("pool.json", f"{text}\n".encode())
    elif load_pool(files.path / "pool.json") != pool:
        raise DatasetError(
            f"{files.path}/pool.json differs from the pool to generate from; "
            "choose another output folder"
        )


def _to_json(value: object) -> bytes:
    return f"{json.dumps(value, ensure_ascii=False, indent=1)}\n".encode()


@dataclass(frozen=True, slots=True)
class _Generation:
    chat: ChatModel
    embedder: Embedder
    pool: Pool
    files: LocalFiles
    run: str
    seed: int
    edit_budget: int
    made_with: Mapping[str, str]
    progress: Callable[[Progress], None] | None

    async def user(self, questioner: Questioner) -> Failure | None:
        """Write one user's file, or a partial file with the reason."""
        user_id = questioner.user
        draft = _Draft()
        try:
            user = await self._build(questioner, draft)
        except UserFailed as failure:
            failed = Failure(
                user_id, failure.step, failure.reason, failure.detail, failure.resumable
            )
            self.files.write(f"partial/{user_id}.partial.json", _to_json(_partial(failed, draft)))
            self._tell(user_id, f"failed: {failure.step}", draft)
            return failed
        data = user.model_dump(mode="json", exclude_none=True, exclude={"closings"})
        self.files.write(f"users/{user_id}.json", _to_json(data))
        self.files.remove(f"partial/{user_id}.partial.json")
        return None

    async def _build(self, questioner: Questioner, draft: _Draft) -> User:
        user_id = questioner.user
        draft.profile = await write_profile(self.seed, questioner)
        self._tell(user_id, "persona", draft)
        for spec in category_order(self.pool):
            draft.bank[spec.name] = await write_category(
                spec, draft.profile, draft.bank, questioner
            )
            self._tell(user_id, f"bank:{spec.name.value}", draft)
        bench = Workbench(draft.profile, questioner, self.embedder, self.edit_budget)
        for spec in category_order(self.pool):
            for entry in draft.bank[spec.name]:
                draft.tasks.append(await write_task(bench, spec, entry, draft.tasks))
                self._tell(user_id, f"task:{entry.dimension}", draft)
        user = User(
            format=USER_FORMAT,
            user_id=user_id,
            profile=draft.profile,
            memory_bank=draft.bank,
            tasks=tuple(draft.tasks),
            generation=dict(self.made_with),
        )
        findings = validate_user(user, self.pool)
        findings += await validate_similarity(user, self.embedder)
        errors = [f"{f.where}: {f.message}" for f in findings if f.severity == "error"]
        if errors:
            raise UserFailed("validation", Reason.INVALID_OUTPUT, "; ".join(errors))
        return user

    def _tell(self, user_id: str, step: str, draft: _Draft) -> None:
        if self.progress is None:
            return
        total = 1 + sum(1 + c.slots for c in self.pool.categories)
        done = (draft.profile is not None) + len(draft.bank) + len(draft.tasks)
        self.progress(Progress(user_id, step, done, total))


def _partial(failed: Failure, draft: _Draft) -> dict[str, object]:
    return {
        "user_id": failed.user_id,
        "step": failed.step,
        "reason": failed.reason.value,
        "detail": failed.detail,
        "resumable": failed.resumable,
        "profile": draft.profile.model_dump(mode="json") if draft.profile else None,
        "memory_bank": {
            c.value: [e.model_dump(mode="json") for e in entries]
            for c, entries in draft.bank.items()
        },
        "tasks": [t.model_dump(mode="json", exclude_none=True) for t in draft.tasks],
    }


async def _together(
    generation: _Generation, todo: list[Questioner]
) -> list[tuple[str, Failure | None]]:
    """All users at once; an error that is no user's own (a full disk) stops and surfaces."""
    running = [asyncio.create_task(generation.user(q)) for q in todo]
    try:
        failures = await asyncio.gather(*running)
    except BaseException:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        raise
    return [(q.user, failure) for q, failure in zip(todo, failures, strict=True)]


async def generate_users(
    chat: ChatModel,
    embedder: Embedder,
    pool: Pool,
    *,
    count: int,
    seed: int,
    out: Path,
    run: str = "generate",
    start_index: int = 1,
    edit_budget: int = EDIT_BUDGET,
    progress: Callable[[Progress], None] | None = None,
) -> GenerationReport:
    """Write users `user_<start_index>` and on to `out/users/`, with pool and card beside them.

    Users are made in parallel, a user's tasks in sequence, since each sees those
    before it. A user is the same for the same (seed, id, models, prompts),
    whatever else is generated. The same command again skips complete users and
    replays finished calls from the ledger. A user that cannot be finished is
    kept as `out/partial/<id>.partial.json` and does not stop the others.

    `embedder` measures leakage (cosine); `edit_budget` bounds the edits of one
    draft. Raises `UsageError` for a bad count, `DatasetError` when `out` holds a
    different pool or a broken user file.
    """
    if count < 1 or start_index < 1 or edit_budget < 0:
        raise UsageError("count and start index are at least 1, the edit budget at least 0")
    files = LocalFiles(out)
    _place_pool(files, pool)
    made_with = provenance(chat, seed, edit_budget)
    generation = _Generation(
        chat, embedder, pool, files, run, seed, edit_budget, made_with, progress
    )
    skipped: list[str] = []
    other: list[str] = []
    todo: list[Questioner] = []
    for index in range(start_index, start_index + count):
        user_id = f"user_{index:03d}"
        path = out / "users" / f"{user_id}.json"
        if not path.exists():
            todo.append(Questioner(chat, run, user_id))
            continue
        skipped.append(user_id)
        if load_user(path).generation != made_with:
            other.append(user_id)
    ended = await _together(generation, todo)
    written = tuple(user_id for user_id, failure in ended if failure is None)
    return GenerationReport(
        out=out,
        written=written,
        skipped=tuple(skipped),
        other_settings=tuple(other),
        failed=tuple(failure for _, failure in ended if failure is not None),
        calls=sum(q.calls for q in todo),
        replayed=sum(q.replayed for q in todo),
        digest=write_card(out) if written or skipped else None,
    )
