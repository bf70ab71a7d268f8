"""The units of the paradigms suite as a Prefect task, and their order.

One task takes a system through one episode: the sessions go in, then the probes
are asked. Most of a suite's systems take milliseconds for it.
"""

from __future__ import annotations

from typing import ClassVar

from prefect import task

from flows import runtime
from flows.conductor import CACHED, Conductor
from flows.units import Chain, Marked, probed
from memprobe.outcomes import Unscored
from tasks.commit import is_there
from tasks.paradigms import answer, ingest
from tasks.paradigms.context import ParadigmsContext


@task(name="episode", task_run_name="{unit}", **CACHED)
async def episode_task(
    run: str, unit: str, mark: str, places: dict[str, str], system: str, user: str, epoch: int
) -> str:
    """One episode with one system: its sessions into a fresh store, then its probes."""
    async with runtime.attached(run, places, [system]) as here:
        await ingest.ingest_episode(here.context, system, user, epoch)
        return await answer.answer_episode(here.context, system, user, epoch)


class ParadigmsConductor(Conductor[ParadigmsContext]):
    """Every episode of every system stands for itself."""

    shown: ClassVar = {"episode": ("ingest", "answer")}

    def stages(self) -> tuple[str, ...]:
        return ("ingest", "answer")

    def units_of(self, chain: Chain) -> tuple[Marked, ...]:
        return probed(self.context, chain)

    async def work(self, chain: Chain) -> bool:
        place = {"system": chain.system, "user": chain.user, "epoch": chain.epoch}
        written, (unit, mark) = probed(self.context, chain)
        if not is_there(self.context.store, *written):
            # Answers from a store that is lost: both are made again.
            self.context.store.reset(unit)
        if not await self.unit("episode", unit, mark, episode_task, **place):
            await self.break_off(chain, unit)
        return True

    async def give_up(self, chain: Chain, failure: Unscored) -> None:
        await answer.give_up_episode(self.context, chain.system, chain.user, chain.epoch, failure)
