"""The suite's tables: which trajectories there are, lengths and noise by level."""

from __future__ import annotations

from dataclasses import dataclass

from memprobe.evolution.spec import Category, Domain, Level, TrajectoryType

WORDS: dict[Level, tuple[int, int]] = {
    Level.L1: (200, 400),
    Level.L2: (400, 800),
    Level.L3: (600, 1000),
}
"""Words of a state's document."""
NOISE_CLAIMS: dict[Level, tuple[int, int]] = {
    Level.L1: (0, 0),
    Level.L2: (2, 3),
    Level.L3: (4, 5),
}
"""Unrelated statements in a state's document."""
NOISE_DOCUMENTS = 4
"""Documents about other things in a trajectory of C2."""
NOISE_WORDS = (150, 800)


@dataclass(frozen=True, slots=True)
class Planned:
    """A trajectory that the plan asks for."""

    level: Level
    domain: Domain
    trajectory_type: TrajectoryType
    states: int

    @property
    def documents(self) -> int:
        """Documents of its states."""
        return self.states


_PLAN = """
c1_a L1 infrastructure contradiction 4
c1_b L1 security linear-evolution 4
c1_c L2 financial_operations contradiction 5
c1_d L2 machine_learning retraction 4
c1_e L3 data_engineering gradual-drift 4
c2_a L1 containers stable 4
c2_b L1 infrastructure linear-evolution 4
c2_c L2 security scope-expansion 4
c2_d L3 financial_operations stable 4
c2_e L3 machine_learning linear-evolution 5
c3_a L1 data_engineering stable 4
c3_b L2 containers contradiction 5
c3_c L2 infrastructure scope-expansion 4
c3_d L3 security linear-evolution 4
c3_e L3 financial_operations retraction 4
c4_a L1 machine_learning scope-expansion 4
c4_b L1 data_engineering scope-expansion 4
c4_c L2 containers linear-evolution 4
c4_d L2 infrastructure scope-expansion 5
c4_e L3 security stable 4
c5_a L1 financial_operations linear-evolution 5
c5_b L1 machine_learning retraction 4
c5_c L2 data_engineering gradual-drift 5
c5_d L3 containers linear-evolution 4
c5_e L3 infrastructure retraction 4
c6_a L1 security stable 4
c6_b L2 financial_operations contradiction 5
c6_c L2 machine_learning stable 4
c6_d L3 data_engineering contradiction 4
c6_e L3 containers scope-expansion 4
"""


def _plan() -> dict[str, Planned]:
    plan = {}
    for line in _PLAN.split("\n"):
        if line:
            name, level, domain, kind, states = line.split()
            plan[name] = Planned(Level(level), Domain(domain), TrajectoryType(kind), int(states))
    return plan


PLAN: dict[str, Planned] = _plan()
"""The bundled trajectories by the beginning of their ids (`c1_a` of `c1_a_database_choice`)."""


def category_of(name: str) -> Category:
    """The category that an id begins with."""
    return Category(name[:2].upper())
