"""A suite of one's own: mini-specs become episodes whose conversations a model writes.

The design is fixed by the expander before the first call; a model writes words
only, and every check of `memprobe suite validate` is held against them.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import prompts
from memprobe.chat import ChatModel
from memprobe.dataset import content_digest
from memprobe.errors import DatasetError
from memprobe.outcomes import Reason
from memprobe.paradigms.checks import Problem, Validation, check_suite, inspect_suite
from memprobe.paradigms.expand import Blueprint, DomainConfig, MiniSpec
from memprobe.paradigms.spec import Episode
from memprobe.paradigms.suite import CARD, load_episode, suite_digest
from memprobe.types import Role
from storage.files import LocalFiles
from tasks.generate.asking import Questioner, UserFailed
from tasks.suite.inputs import expand_all
from tasks.suite.sessions import PROMPTS, session_times
from tasks.suite.writer import ROUNDS, EpisodeWriter, badness, by_session

SUITE, STAGE = "paradigms", "suite_build"
FORMAT = "memprobe.suite_card/1"
_ACROSS = frozenset({"opening", "repeated"})


@dataclass(frozen=True, slots=True)
class Progress:
    """Where one episode stands: `done` of `total` sessions, the last of which was `step`."""

    episode: str
    step: str
    done: int
    total: int


@dataclass(frozen=True, slots=True)
class Failure:
    """An episode that could not be finished; `resumable` as in `UserFailed`."""

    episode: str
    step: str
    reason: Reason
    detail: str
    resumable: bool


@dataclass(frozen=True, slots=True)
class BuildReport:
    """What a build came to.

    `kept` were there before; `other_settings` are those of them that were made
    with another model, seed, prompt or domain text or by hand, `outdated` those
    whose mini-spec is another one now. `problems` are what the checks find in
    the whole folder, `calls` counts usable answers, `replayed` those of them
    that the ledger gave.
    """

    out: Path
    written: tuple[str, ...]
    kept: tuple[str, ...]
    other_settings: tuple[str, ...]
    outdated: tuple[str, ...]
    failed: tuple[Failure, ...]
    problems: tuple[Problem, ...]
    calls: int
    replayed: int
    digest: str | None

    @property
    def complete(self) -> bool:
        """Whether every mini-spec has its episode and no check finds an error."""
        wrong = any(p.severity == "error" for p in self.problems)
        return not (self.failed or self.outdated or wrong)


def provenance(chat: ChatModel, seed: int) -> dict[str, str]:
    """What episodes are made with, as the suite's card records it."""
    record = {"model": chat.model_for(Role.GENERATOR), "seed": str(seed)}
    for name in sorted(PROMPTS.values()):
        record[f"prompt.{name}"] = prompts.load(name).identity
    return record


def _bytes(value: Any) -> bytes:
    return f"{json.dumps(value, ensure_ascii=False, indent=1)}\n".encode()


def episode_bytes(episode: Episode) -> bytes:
    """An episode as its file."""
    return _bytes(episode.model_dump(mode="json"))


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@dataclass(slots=True)
class _Card:
    """The suite's card, written anew with each episode."""

    files: LocalFiles
    domain: DomainConfig
    made_with: Mapping[str, str]
    episodes: dict[str, dict[str, str]] = field(default_factory=dict)

    def read(self) -> None:
        """What an earlier build noted. A card that cannot be used is replaced: nothing is lost."""
        if self.files.size(CARD) is None:
            return
        try:
            found = json.loads(self.files.read(CARD))
        except (ValueError, RecursionError):
            return
        noted = found.get("episodes") if isinstance(found, dict) else None
        if isinstance(noted, dict):
            self.episodes = {
                name: {key: str(value) for key, value in entry.items()}
                for name, entry in noted.items()
                if isinstance(entry, dict)
            }

    def fingerprint(self, blueprint: Blueprint) -> str:
        """What an episode's words were written from."""
        world = self.domain.model_copy(update={"fact_types": {}})
        made = json.dumps(dict(self.made_with), sort_keys=True)
        parts = (blueprint.model_dump_json(), world.model_dump_json(), made)
        return content_digest(*(part.encode() for part in parts))

    def untouched(self, name: str, blueprint: Blueprint) -> bool:
        """Whether the file is what this build would have written, word for word."""
        noted = self.episodes.get(name, {})
        return noted.get("fingerprint") == self.fingerprint(blueprint) and noted.get(
            "sha256"
        ) == _sha256(self.files.read(f"{name}.json"))

    def put(self, episode: Episode, blueprint: Blueprint) -> None:
        """Write an episode, then the card with it."""
        data = episode_bytes(episode)
        self.files.write(f"{episode.id}.json", data)
        self.episodes[episode.id] = {
            "sha256": _sha256(data),
            "fingerprint": self.fingerprint(blueprint),
        }
        self.write(None)

    def write(self, digest: str | None) -> None:
        """Write the card; `digest` is that of the whole suite, when it is known."""
        card = {
            "format": FORMAT,
            "domain": str(self.domain.domain),
            "made_with": dict(self.made_with),
            "digest": digest,
            "episodes": dict(sorted(self.episodes.items())),
        }
        self.files.write(CARD, _bytes(card))


@dataclass(slots=True)
class _Build:
    chat: ChatModel
    domain: DomainConfig
    seed: int
    run: str
    card: _Card
    progress: Callable[[Progress], None] | None
    writers: dict[str, EpisodeWriter] = field(default_factory=dict)

    def writer(self, blueprint: Blueprint) -> EpisodeWriter:
        """The writer of an episode; one and the same for a blueprint."""
        name = blueprint.spec.episode_id
        if name not in self.writers:

            def tell(step: str, done: int, total: int) -> None:
                if self.progress is not None:
                    self.progress(Progress(name, step, done, total))

            times = session_times(self.seed, name, len(blueprint.sessions))
            asking = Questioner(self.chat, self.run, name, SUITE, STAGE)
            self.writers[name] = EpisodeWriter(blueprint, self.domain, times, asking, tell)
        return self.writers[name]

    async def episode(self, blueprint: Blueprint) -> Failure | None:
        """Write one episode's file, or a partial file with the reason."""
        writer = self.writer(blueprint)
        partial = f"partial/{writer.id}.partial.json"
        try:
            episode = await writer.write()
        except UserFailed as failure:
            failed = Failure(
                writer.id, failure.step, failure.reason, failure.detail, failure.resumable
            )
            self.card.files.write(partial, _bytes(_partial(failed, writer)))
            return failed
        self.card.put(episode, blueprint)
        self.card.files.remove(partial)
        return None

    async def mend(self, name: str, blueprints: Mapping[str, Blueprint]) -> None:
        """Write sessions again that resemble one of another episode; only our own files."""
        for turn in range(ROUNDS + 1, 2 * ROUNDS + 1):
            mine = {
                key: blueprint
                for key, blueprint in blueprints.items()
                if self.card.files.size(f"{key}.json") and self.card.untouched(key, blueprint)
            }
            episodes = {e.id: e for e in inspect_suite(self.card.files.path, None).episodes}
            found = check_suite(name, list(episodes.values()))
            doubtful = [p for p in found if p.rule in _ACROSS and p.episode in mine]
            if not doubtful:
                return
            changed: dict[str, Episode] = {}
            for key in sorted({p.episode for p in doubtful}):
                writer = self.writer(mine[key])
                writer.sessions = list(episodes[key].sessions)
                for i, problems in by_session([p for p in doubtful if p.episode == key]).items():
                    writer.tell(f"{i:02d}: resembles another episode, again", i, len(writer.times))
                    try:
                        writer.sessions[i] = await writer.again(i, problems, turn)
                    except UserFailed:
                        # The episode stands as it is; the problem is in the report.
                        continue
                changed[key] = writer.episode()
            trial = list({**episodes, **changed}.values())
            if badness(check_suite(name, trial)) >= badness(found):
                return
            for key, episode in changed.items():
                self.card.put(episode, mine[key])


def _inspected(out: Path) -> Validation | None:
    """What the checks say of a folder; None when no episode could be finished."""
    try:
        return inspect_suite(out, None)
    except DatasetError:
        return None


def _partial(failed: Failure, writer: EpisodeWriter) -> dict[str, Any]:
    return {
        "episode": failed.episode,
        "step": failed.step,
        "reason": failed.reason.value,
        "detail": failed.detail,
        "resumable": failed.resumable,
        "spec": writer.blueprint.spec.model_dump(mode="json"),
        "sessions": [session.model_dump(mode="json") for session in writer.sessions],
    }


async def _together(build: _Build, todo: Sequence[Blueprint]) -> list[Failure | None]:
    """All episodes at once; an error that is no episode's own (a full disk) stops and surfaces."""
    running = [asyncio.create_task(build.episode(blueprint)) for blueprint in todo]
    try:
        return list(await asyncio.gather(*running))
    except BaseException:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        raise


async def build_suite(
    chat: ChatModel,
    minis: Sequence[MiniSpec],
    domain: DomainConfig,
    *,
    out: Path,
    seed: int,
    run: str = "suite",
    progress: Callable[[Progress], None] | None = None,
) -> BuildReport:
    """Write `out/<episode_id>.json` for each mini-spec, and `out/card.json`.

    All mini-specs are expanded before the first call. Each session is asked for
    until it passes its checks, three times at most; then the episode's and the
    suite's checks are held against the whole, and what they find in a session is
    written again, three rounds at most. A file that is there is never replaced,
    unless a build wrote it and it resembles another episode. An episode that
    cannot be finished is kept as `out/partial/<id>.partial.json` and does not
    stop the others; the same command goes on, and finished calls are free.

    Raises `DatasetError` for what cannot be expanded and for an episode file that
    cannot be read.
    """
    blueprints = {b.spec.episode_id: b for b in expand_all(list(minis), domain)}
    card = _Card(LocalFiles(out), domain, provenance(chat, seed))
    card.read()
    build = _Build(chat, domain, seed, run, card, progress)
    kept: list[str] = []
    other: list[str] = []
    outdated: list[str] = []
    todo: list[Blueprint] = []
    for name, blueprint in blueprints.items():
        path = out / f"{name}.json"
        if not path.exists():
            todo.append(blueprint)
            continue
        kept.append(name)
        if load_episode(path).spec != blueprint.spec:
            outdated.append(name)
        elif not card.untouched(name, blueprint):
            other.append(name)
    failed = [f for f in await _together(build, todo) if f is not None]
    problems: tuple[Problem, ...] = ()
    digest = None
    if _inspected(out) is not None:
        await build.mend(out.name, blueprints)
    found = _inspected(out)
    if found is not None:
        problems = found.problems
        digest = suite_digest(found.episodes)
        card.write(digest)
    gone = {f.episode for f in failed}
    return BuildReport(
        out=out,
        written=tuple(b.spec.episode_id for b in todo if b.spec.episode_id not in gone),
        kept=tuple(kept),
        other_settings=tuple(other),
        outdated=tuple(outdated),
        failed=tuple(failed),
        problems=problems,
        calls=sum(w.questioner.calls for w in build.writers.values()),
        replayed=sum(w.questioner.replayed for w in build.writers.values()),
        digest=digest,
    )
