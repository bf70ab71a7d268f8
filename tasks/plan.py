"""What a run will ask for: calls, tokens, money and time, before anything is spent.

Prompt sizes come from the data set's own texts, rendered into the prompts, at
four characters a token. How a dialogue goes is taken from the published release
of 50 users (turns an episode, length of a reply, how a store grows).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from memprobe.config import RunConfig
from memprobe.dataset import Dataset, User
from memprobe.errors import UsageError
from memprobe.systems import SystemCard
from memprobe.types import AccessMode, Role
from memprobe.types import Protocol as Procedure
from tasks import chunked
from tasks import plan_assumptions as assumed
from tasks.judge_check import MAX_USERS, TARGETS_PER_USER
from tasks.plan_sums import Plan, Priced, Tally, estimated, plan_of
from tasks.prompt_sizes import Sizes, sizes_of
from tasks.reading import ANSWER_RESERVE, CACHE_FLOOR
from tasks.rollout import REPLY_K


def chosen_users(config: RunConfig, dataset: Dataset) -> tuple[list[User], int]:
    """The users to measure and how many the run has; more than there are is an extrapolation."""
    if config.users is None:
        return list(dataset.users), len(dataset.users)
    if isinstance(config.users, int):
        return list(dataset.users[: config.users]), config.users
    known = {user.user_id: user for user in dataset.users}
    missing = [user for user in config.users if user not in known]
    if missing:
        raise UsageError(
            f"--users: no user {', '.join(missing)} in data set {dataset.name!r}; "
            f"there are: {', '.join(list(known)[:20])}"
        )
    return [known[user] for user in config.users], len(config.users)


class _Estimate(Tally):
    def __init__(self, config: RunConfig, dataset: Dataset, window: int | None) -> None:
        super().__init__(config)
        self.dataset = dataset
        self.window = window

    @property
    def turns(self) -> float:
        return min(assumed.TURNS, float(self.config.max_turns))

    @property
    def pairs(self) -> float:
        most = self.config.max_turns * (self.config.max_turns - 1) / 2
        return min(assumed.TURN_PAIRS, most)

    def rollout(self, card: SystemCard, size: Sizes) -> float:
        """One user's episodes; returns the seconds of the chain."""
        episodes, turns = size.tasks, size.tasks * self.turns
        again = size.tasks * self.pairs
        exchange = size.reply + size.message
        memory = 0.0
        if card.capabilities.stores and card.reply_access == "dump_all":
            # Every turn reads all earlier episodes and what came before it in its own.
            memory = turns * self.episode_tokens(card, size) * (episodes - 1) / 2
            memory += again * exchange
        elif card.capabilities.stores and card.reply_access == "retrieve":
            memory = turns * REPLY_K * self.item_tokens(card, size)
        reply = self.add(
            "rollout",
            card.name,
            Role.ASSISTANT,
            turns,
            turns * size.base[Role.ASSISTANT] + again * exchange + memory,
            size.reply,
        )
        simulated = self.add(
            "rollout",
            card.name,
            Role.SIMULATOR,
            turns,
            turns * (size.base[Role.SIMULATOR] + size.reply) + again * exchange,
            assumed.ANSWER_TOKENS[Role.SIMULATOR],
        )
        if not self.config.model_of(Role.PREFERENCE).startswith("embedded/"):
            self.add(
                "rollout",
                card.name,
                Role.PREFERENCE,
                turns,
                turns * (size.base[Role.PREFERENCE] + size.reply),
                assumed.ANSWER_TOKENS[Role.PREFERENCE] * size.preferences,
            )
        # Messages are written beside the simulated user's reaction, one after another.
        written = self.memory_work("rollout", card, card.per_message, turns + episodes)
        found = self.memory_work("rollout", card, card.per_search, turns)
        self.unknown_work(card)
        return turns * (found + reply + max(simulated, written))

    def episode_tokens(self, card: SystemCard, size: Sizes) -> float:
        """By how much an episode makes a store grow."""
        if not card.capabilities.stores:
            return 0.0
        if not card.capabilities.verbatim:
            return assumed.EXTRACTED_EPISODE_TOKENS
        return size.task + self.turns * (size.reply + size.message)

    def item_tokens(self, card: SystemCard, size: Sizes) -> float:
        """An item's mean length."""
        if not card.capabilities.verbatim:
            return assumed.EXTRACTED_ITEM_TOKENS
        return self.episode_tokens(card, size) / (1 + 2 * self.turns)

    def recover(self, card: SystemCard, size: Sizes) -> float:
        """One user's slot-fills and verdicts in all modes; returns the seconds of the chain."""
        fill = judge = 0.0
        if AccessMode.DUMP_ALL in self.config.access and card.capabilities.stores:
            store = self.episode_tokens(card, size) * size.tasks
            frame = size.base[Role.SLOT_FILL]
            if self.window is not None and store + frame + ANSWER_RESERVE > self.window:
                fill, judge = self._overflowing(card, size, store, self.window)
            else:
                prefix = store if store >= CACHE_FLOOR else 0.0
                fill, judge = self._view(card, size, store, prefix * (size.targets - 1))
                fill += fill if prefix else 0.0
        searching = 0.0
        if AccessMode.RETRIEVE in self.config.access and card.retrieve:
            searching = size.targets * self.memory_work(
                "recover", card, card.per_search, size.targets
            )
            for k in self.config.k:
                one = self._view(card, size, k * self.item_tokens(card, size), 0.0)
                fill, judge = max(fill, one[0]), max(judge, one[1])
        return searching + fill + judge

    def _overflowing(
        self, card: SystemCard, size: Sizes, store: float, window: int
    ) -> tuple[float, float]:
        """A store that one prompt cannot hold: read in parts where that is asked for."""
        said = (
            f"{card.name}: a full store of about {store:,.0f} tokens does not fit the window of "
            f"{window:,}; dump_all will be unscored (store_overflow)"
        )
        room = window - ANSWER_RESERVE - size.base[Role.SLOT_FILL]
        if not chunked.wanted(self.config) or room < chunked.LEAST_ROOM:
            self.notes[said] = None
            return 0.0, 0.0
        parts = math.ceil(store / room)
        self.notes[f"{said} when read whole and is read in about {parts} parts beside it"] = None
        part = store / parts
        prefix = part if part >= CACHE_FLOOR else 0.0
        fill = self.add(
            "recover",
            card.name,
            Role.SLOT_FILL,
            parts * size.targets,
            parts * size.targets * (size.base[Role.SLOT_FILL] + part),
            assumed.ANSWER_TOKENS[Role.SLOT_FILL],
            parts * prefix * (size.targets - 1),
        )
        # At most one merge a target; fewer where the parts agree or only one knows.
        readings = parts * (assumed.ANSWER_TOKENS[Role.SLOT_FILL] + assumed.READING_TOKENS)
        merge, judge = self._view(card, size, readings, 0.0)
        return fill * (2 if prefix else 1) + merge, judge

    def _view(
        self, card: SystemCard, size: Sizes, memory: float, cached: float
    ) -> tuple[float, float]:
        n = size.targets
        fill = self.add(
            "recover",
            card.name,
            Role.SLOT_FILL,
            n,
            n * (size.base[Role.SLOT_FILL] + memory),
            assumed.ANSWER_TOKENS[Role.SLOT_FILL],
            cached,
        )
        judge = self.add(
            "recover",
            card.name,
            Role.JUDGE,
            n,
            n * size.base[Role.JUDGE],
            assumed.ANSWER_TOKENS[Role.JUDGE],
        )
        return fill, judge

    def attribute(self, card: SystemCard, size: Sizes) -> float:
        """One user's lost targets; both modes share their calls, as the transcript is the same."""
        lost = (
            size.targets
            * assumed.INVITED
            * ((1 - assumed.RECOVERED) if card.capabilities.stores else 1.0)
        )
        transcript = self.turns * (size.reply + size.message)
        if (
            self.config.protocol is Procedure.PAPER
            and len(self.config.access) > 1
            and card.retrieve
        ):
            # The published retrieve rows are judged apart, on empty transcripts.
            lost, transcript = 2 * lost, transcript / 2
        seconds = 0.0
        for role, share in ((Role.DISCLOSURE, 1.0), (Role.SUBCLASS, assumed.UNDISCLOSED)):
            prompt = lost * share * (size.base[role] + transcript)
            seconds += self.add(
                "attribute", card.name, role, lost * share, prompt, assumed.ANSWER_TOKENS[role]
            )
        return seconds

    def shared_fills(
        self, card: SystemCard, users: Sequence[User], total: int, size: float
    ) -> None:
        """An empty memory gives the same prompt for the same dimension, whoever the user is."""
        if AccessMode.DUMP_ALL not in self.config.access:
            return
        if total == len(users):
            calls = float(len({(c, e.dimension) for u in users for c, e in u.targets()}))
        else:
            calls = sum(
                len(c.dimensions) * (1 - (1 - c.slots / len(c.dimensions)) ** total)
                for c in self.dataset.pool.categories
            )
        self.add(
            "recover",
            card.name,
            Role.SLOT_FILL,
            calls * self.config.epochs,
            calls * self.config.epochs * size,
            assumed.ANSWER_TOKENS[Role.SLOT_FILL],
        )


def estimate(
    config: RunConfig,
    dataset: Dataset,
    cards: Sequence[SystemCard],
    *,
    price: Callable[[str], Priced | None],
    window: int | None = None,
) -> Plan:
    """Estimate a run of these settings.

    `cards` are those of the run's systems, `price` knows a model's prices,
    `window` is the reader's context window in tokens. Raises `UsageError` for a
    user that is not in the data set.
    """
    users, total = chosen_users(config, dataset)
    sizes = [sizes_of(user, dataset.pool, config) for user in users]
    work = _Estimate(config, dataset, window)
    for card in cards:
        for size in sizes:
            seconds = work.rollout(card, size) + work.recover(card, size)
            work.chains.append(seconds + work.attribute(card, size))
    for size in sizes:
        work.add(
            "oracle",
            "",
            Role.ORACLE,
            size.targets,
            size.targets * size.base[Role.ORACLE],
            assumed.ANSWER_TOKENS[Role.ORACLE],
        )
    scale = total / len(users)
    for (stage, _, _), sums in work.sums.items():
        factor = scale * (1 if stage == "oracle" else config.epochs)
        for name in ("calls", "prompt", "cached", "completion", "seconds"):
            setattr(sums, name, getattr(sums, name) * factor)
    fill = sum(size.base[Role.SLOT_FILL] for size in sizes) / len(sizes)
    judge = sum(size.base[Role.JUDGE] for size in sizes) / len(sizes)
    for card in cards:
        if not card.capabilities.stores:
            work.shared_fills(card, users, total, fill)
    planted = min(total, MAX_USERS) * TARGETS_PER_USER * 4
    work.add(
        "judge_check", "", Role.JUDGE, planted, planted * judge, assumed.ANSWER_TOKENS[Role.JUDGE]
    )
    notes = [estimated(f"{work.turns:g} turns an episode, ")]
    if total > len(users):
        notes.append(
            f"{total} users are extrapolated from the mean of the {len(users)} in data set "
            f"{dataset.name!r}; `memprobe generate` makes more"
        )
    return plan_of(work, [card.name for card in cards], len(users), total, price, notes)
