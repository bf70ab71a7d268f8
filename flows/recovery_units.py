"""The units of the recovery suite as Prefect tasks, and their order."""

from __future__ import annotations

import asyncio
from typing import ClassVar

from prefect import task

from flows import progress, runtime
from flows.conductor import CACHED, Conductor, Elsewhere, Units
from flows.runtime import Runtime
from flows.units import Chain, Marked, measured, rolled
from memprobe.outcomes import Unscored
from tasks import attribute, judge_check, oracle, recover, rollout
from tasks.commit import is_there
from tasks.context import RunContext


@task(name="rollout", task_run_name="{unit}", **CACHED)
async def rollout_task(
    run: str, unit: str, mark: str, places: dict[str, str], system: str, user: str, epoch: int
) -> str:
    """One user's episodes with one system."""
    async with runtime.attached(run, places, [system]) as here:
        return await rollout.rollout_user(here.context, system, user, epoch)


@task(name="measure", task_run_name="{unit}", **CACHED)
async def measure_task(
    run: str, unit: str, mark: str, places: dict[str, str], system: str, user: str, epoch: int
) -> str:
    """Recovery of one user from one system in all modes, then its attribution."""
    async with runtime.attached(run, places, [system]) as here:
        await recover.recover_user(here.context, system, user, epoch)
        return await attribute.attribute_user(here.context, system, user, epoch)


@task(name="oracle", task_run_name="{unit}", **CACHED)
async def oracle_task(run: str, unit: str, mark: str, places: dict[str, str], user: str) -> str:
    """Stage 0 for one user's tasks."""
    async with runtime.attached(run, places) as here:
        return await oracle.oracle_user(here.context, user)


@task(name="judge-check", task_run_name="{unit}", **CACHED)
async def judge_check_task(
    run: str, unit: str, mark: str, places: dict[str, str], users: list[str]
) -> str:
    """The planted answers of this run."""
    async with runtime.attached(run, places) as here:
        return await judge_check.judge_check(here.context, tuple(users))


class RecoveryConductor(Conductor[RunContext]):
    """Rollout, then measurement; a user's oracle runs beside the rollout."""

    shown: ClassVar = {"measure": ("recover", "attribute")}

    def __init__(
        self,
        run: Runtime[RunContext],
        units: Units | None = None,
        elsewhere: Elsewhere | None = None,
        *,
        part: bool = False,
    ) -> None:
        super().__init__(run, units, elsewhere, part=part)
        self._oracles: dict[str, asyncio.Task[bool]] = {}

    def stages(self) -> tuple[str, ...]:
        return ("rollout", "recover", "attribute")

    def units_of(self, chain: Chain) -> tuple[Marked, ...]:
        return (rolled(self.context, chain), *measured(self.context, chain))

    def expect(self) -> None:
        super().expect()
        if not self.is_part:
            progress.current().expect("oracle", "", len(self.run.users))
            progress.current().expect("judge_check", "", 1)

    async def oracle(self, user: str) -> bool:
        """Stage 0 of a user; a part tells whether the conducting process has left it."""
        unit = oracle.oracle_unit(user)
        mark = oracle.oracle_fingerprint(self.context, user)
        if self.is_part:
            return is_there(self.context.store, unit, mark)
        return await self.unit("oracle", unit, mark, oracle_task, user=user)

    def _oracle(self, user: str) -> asyncio.Task[bool]:
        if user not in self._oracles:
            self._oracles[user] = asyncio.create_task(self.oracle(user))
        return self._oracles[user]

    async def before(self) -> None:
        await asyncio.gather(*(self._oracle(user) for user in self.run.users))

    async def beside(self) -> None:
        """The planted answers; they belong to the whole run."""
        if not self.is_part:
            await self.unit(
                "judge_check",
                judge_check.judge_check_unit(),
                judge_check.judge_check_fingerprint(self.context, self.run.users),
                judge_check_task,
                users=list(self.run.users),
            )

    async def work(self, chain: Chain) -> bool:
        place = {"system": chain.system, "user": chain.user, "epoch": chain.epoch}
        unit, mark = rolled(self.context, chain)
        there = await self.unit("rollout", unit, mark, rollout_task, **place)
        if not there:
            await self.break_off(chain, unit)
        if not there or not await self._oracle(chain.user):
            return False
        recovered, attributed = measured(self.context, chain)
        store = self.context.store
        if not is_there(store, *recovered):
            # Attributions of verdicts that are lost: both are made again.
            store.reset(attributed[0])
        unit, mark = attributed
        if not await self.unit("measure", unit, mark, measure_task, **place):
            await self.break_off(chain, unit)
        return True

    async def give_up(self, chain: Chain, failure: Unscored) -> None:
        key = (chain.system, chain.user, chain.epoch)
        await recover.give_up_user(self.context, *key, failure)
        await attribute.attribute_user(self.context, *key, failed=True)
