"""What `plan` loads and how it shows an estimate. Nothing is sent, no server is started."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flows.cli.live import duration, money
from flows.cli.output import table
from memprobe.config import RunConfig

if TYPE_CHECKING:
    from tasks.plan_sums import Plan


def plan_run(config: RunConfig) -> Plan:
    """The estimate for these settings, with litellm's bundled prices and windows."""
    from adapters.memory.registry import Registry
    from adapters.models.minilm import MiniLM
    from adapters.models.prices import price_of, table_row
    from flows.workloads import dataset_of, suite_of, users_of, workload_of
    from tasks.paradigms.plan import estimate_paradigms
    from tasks.plan import estimate

    registry = Registry(
        MiniLM(), config.protocol, names=config.systems, options=config.system_options
    )
    registry.check_options()
    cards = [registry.card(name) for name in config.systems]
    reader = config.model_of(config.reading_role)
    window = config.context_window
    if window is None and not reader.startswith("embedded/"):
        window = (table_row(reader) or {}).get("max_input_tokens")
    if config.suite == "paradigms":
        suite = suite_of(config)
        episodes = [suite.episode(name) for name in users_of(config, workload_of(config))]
        return estimate_paradigms(config, episodes, cards, price=price_of, window=window)
    return estimate(config, dataset_of(config), cards, price=price_of, window=window)


def print_plan(plan: Plan) -> None:
    """The estimate for people."""
    columns = ["stage", "system", "role", "model", "calls", "prompt tokens", "cached"]
    rows = [
        [
            row.stage,
            row.system or "all",
            row.role,
            row.model,
            f"{row.calls:,}",
            f"{row.prompt_tokens:,}",
            f"{row.cached_tokens:,}",
            f"{row.completion_tokens:,}",
            money(row.cost_usd),
        ]
        for row in plan.rows
    ]
    total = [
        "all",
        "",
        "",
        "",
        f"{plan.calls:,}",
        f"{plan.prompt_tokens:,}",
        f"{plan.cached_tokens:,}",
        f"{plan.completion_tokens:,}",
        money(plan.cost_usd),
    ]
    what = "user" if plan.suite == "recovery" else "episode"
    users = f"{plan.users} {what}{'' if plan.users == 1 else 's'}"
    title = f"{plan.suite}: {users}, systems {', '.join(plan.systems)}"
    table([*columns, "completion tokens", "cost"], [*rows, total], title)
    print(
        f"calls {plan.calls:,} · tokens {plan.prompt_tokens:,} in ({plan.cached_tokens:,} cached), "
        f"{plan.completion_tokens:,} out · money {money(plan.cost_usd)}"
    )
    print(
        f"time about {duration(plan.wall_s)} "
        f"(longest chain of dependent calls {duration(plan.critical_path_s)})"
    )
    for note in plan.notes:
        print(f"- {note}")
