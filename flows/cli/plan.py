"""What `plan` loads and how it shows an estimate. Nothing is sent, no server is started."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from flows.cli.live import duration, money
from flows.cli.output import table
from memprobe.config import RunConfig
from memprobe.types import Role

if TYPE_CHECKING:
    from tasks.plan import Plan


def plan_run(config: RunConfig) -> Plan:
    """The estimate for these settings, with litellm's bundled prices and windows."""
    from adapters.memory.registry import Registry
    from adapters.models.minilm import MiniLM
    from adapters.models.prices import price_of, table_row
    from memprobe.dataset import load_dataset
    from storage.bundled import recovery_dir
    from tasks.plan import estimate

    dataset = load_dataset(Path(config.dataset) if config.dataset else recovery_dir())
    registry = Registry(
        MiniLM(), config.protocol, names=config.systems, options=config.system_options
    )
    registry.check_options()
    cards = [registry.card(name) for name in config.systems]
    reader = config.model_of(Role.SLOT_FILL)
    window = config.context_window
    if window is None and not reader.startswith("embedded/"):
        window = (table_row(reader) or {}).get("max_input_tokens")
    return estimate(config, dataset, cards, price=price_of, window=window)


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
    users = f"{plan.users} user{'' if plan.users == 1 else 's'}"
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
