"""What is measured again on a finished run: `reread`, `retrievals`, `attribute`."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flows.cli import errors
from flows.cli.options import Json, RunName, only_recovery, opened, with_settings
from flows.cli.output import emit_json, note, plain, table
from flows.cli.steps import Steps
from memprobe.errors import UsageError
from memprobe.settings import Resolved
from memprobe.types import AccessMode, Role

if TYPE_CHECKING:
    from flows.reread import SearchCheck
    from storage.runs import RunStore
    from tasks.score import ScoreResult

SHOWN = 20
"""Differing searches printed; --json has all."""
Layer = Annotated[
    str | None,
    typer.Option("--layer", metavar="NAME", help="Name of the new layer; the model's by default."),
]
QueriesOption = Annotated[
    str | None,
    typer.Option(
        "--queries",
        metavar="FILE",
        help="Texts that the run does not record: JSON, the published scorer.py, or `own`.",
    ),
]
CHOICE = ("systems", "users")


def register(app: typer.Typer) -> None:
    """Add the commands."""
    for command in (reread, retrievals, attribute):
        app.command(rich_help_panel="Results")(command)


def _flag(resolved: Resolved, name: str) -> Any:
    """An option of the command line; one of the environment or a file is meant for new runs."""
    return resolved.values[name] if resolved.origins[name].source == "flag" else None


def _roles(resolved: Resolved, known: tuple[Role, ...], command: str) -> dict[Role, str]:
    roles = dict(_flag(resolved, "model_role") or {})
    reader = roles.pop(Role.READER, None) if Role.SLOT_FILL in known else None
    if reader is not None:
        roles.setdefault(Role.SLOT_FILL, reader)
    others = [role.value for role in roles if role not in known]
    if others:
        names = ", ".join(role.value for role in known)
        raise UsageError(f"{command} asks {names}; {', '.join(others)} would need a new run")
    return roles


@with_settings(*CHOICE, "k", "access", "model_role", "max_connections", "call_timeout", "max_cost")
def reread(
    resolved: Resolved,
    run: RunName,
    layer: Layer = None,
    queries: QueriesOption = None,
    json_output: Json = False,
) -> None:
    """Read a run's stored memories again, with another reader or other k, into a new layer.

    The whole store comes from `memory_items`, the top k from the recorded search. For
    `longctx_full` a search is made again where k goes beyond it, or for every k with
    `--queries own`. What is not stored is unscored and says so, never 0. An embedded
    reader is judged by `embedded/judge` unless another judge is given. Of a paradigms run
    the probes are asked again, and how far both readers rank the systems alike is told.
    Examples:

    `memprobe reread pub --model-role reader=embedded/reader --layer emb_reader`

    `memprobe reread pub --systems longctx_full --access retrieve --k 1,3,5,10
    --model-role reader=embedded/reader --queries scorer.py --layer sweep`

    `memprobe reread p1 --model-role reader=openai/gpt-5.4-mini --layer mini`
    """
    from flows.preflight import check_models
    from flows.reread import layer_name, queries_from, reading_config, reread_run
    from flows.stored import chains_of
    from tasks.queries import OWN
    from tasks.reread import Rereading

    resolved, store = opened(resolved, run)
    if store.manifest.config.suite == "paradigms":
        if queries is not None:
            raise UsageError("--queries: a paradigms run records the texts of its searches")
        _reread_paradigms(resolved, store, layer, json_output)
        return
    roles = _roles(resolved, (Role.SLOT_FILL, Role.JUDGE), "reread")
    stored = store.manifest.config
    config = reading_config(
        stored, resolved, roles, _flag(resolved, "k"), _flag(resolved, "access")
    )
    check_models(config, (Role.SLOT_FILL, Role.JUDGE))
    reading = Rereading(layer_name(config, layer), queries_from(queries), queries == OWN)
    chosen = (_flag(resolved, "systems"), _flag(resolved, "users"))
    with store.lock():
        chains = chains_of(store, "rollout", *chosen)
        called = asyncio.run(reread_run(store, resolved, config, reading, chains, Steps()))
        result = _scored(store, reading.layer)
    models = {role.value: config.model_of(role) for role in (Role.SLOT_FILL, Role.JUDGE)}
    _print_layer(store, result, called, models, json_output)
    _say_unscored(store, reading.layer)
    _exit_code(store, result)


def _reread_paradigms(
    resolved: Resolved, store: RunStore, layer: str | None, json_output: bool
) -> None:
    from flows.preflight import check_models
    from flows.reread import layer_name, reread_run
    from flows.reread_paradigms import facts_of, readers_alike
    from flows.stored import chains_of, limited
    from tasks.paradigms.reread import Rereading

    roles = _roles(resolved, (Role.READER,), "reread of a paradigms run")
    config = limited(store.manifest.config, resolved, roles)
    check_models(config, (Role.READER,))
    reading = Rereading(layer_name(config, layer), _flag(resolved, "k"), _flag(resolved, "access"))
    chosen = (_flag(resolved, "systems"), _flag(resolved, "users"))
    with store.lock():
        chains = chains_of(store, "answer", *chosen)
        called = asyncio.run(reread_run(store, resolved, config, reading, chains, Steps()))
        result = _scored(store, reading.layer)
    models = {Role.READER.value: config.model_of(Role.READER)}
    alike = readers_alike(store, reading.layer)
    _print_layer(store, result, called, models, json_output, readers=facts_of(alike))
    if not json_output:
        for one in alike:
            rank = "undefined" if one.spearman is None else f"{one.spearman:.3f}"
            print(
                f"rank correlation of {one.first} and {one.second} over {one.n} systems, "
                f"{one.scorer} scorer: {rank}"
            )
    _say_unscored(store, reading.layer, "answers")
    _exit_code(store, result, "answers")


def _scored(store: RunStore, layer: str) -> ScoreResult:
    from storage.catalog import build_catalog
    from tasks.paradigms.score import score_paradigms
    from tasks.report import build_report
    from tasks.score import score_run

    score = score_paradigms if store.manifest.config.suite == "paradigms" else score_run
    result = score(store, layer)
    build_catalog(store)
    build_report(store)
    return result


def _print_layer(
    store: RunStore,
    result: ScoreResult,
    called: dict[str, int],
    models: dict[str, str],
    json_output: bool,
    **more: Any,
) -> None:
    facts = {"run": store.name, **asdict(result), "coverage": result.coverage, **called}
    if json_output:
        emit_json({**facts, "models": models, **more})
        return
    share = "no coverage" if result.coverage is None else f"{result.coverage:.1%} coverage"
    print(
        f"{store.name}, layer {result.layer}: {result.state}, "
        f"{result.n_scored}/{result.n_total} scored, {share}, {called['new_calls']} new calls "
        f"({', '.join(f'{role} {model}' for role, model in models.items())})"
    )
    # An attribution leaves the scores as they are: there would be nothing to compare.
    if "attributions" in more:
        print(f"next: memprobe report {store.name}")
    else:
        print(f"next: memprobe compare {store.name} {store.name}@{result.layer}")


def _say_unscored(store: RunStore, layer: str, rows: str = "verdicts") -> None:
    """One line for every reason why rows of a layer have no score."""
    from storage.catalog import query

    quoted = layer.replace("'", "''")
    found = query(
        store,
        f"select system, access_mode, k, detail, count(*) from {rows} "
        f"where layer = '{quoted}' and status = 'unscored' group by all order by all",
    )
    for system, mode, k, detail, n in found.rows:
        way = mode if k is None else f"{mode}@{k}"
        note(f"memprobe: {n} unscored, {system} {way}: {plain(detail or '')}")


def _exit_code(store: RunStore, result: ScoreResult, table: str = "verdicts") -> None:
    """Exits with 1 when too much of what was read has no score; users left out are not lost."""
    columns = store.scan(table).select(["layer", "status"])
    rows = [row for row in columns.to_pylist() if row["layer"] == result.layer]
    lost = sum(row["status"] == "unscored" for row in rows)
    if table == "verdicts" and len(rows) < result.n_total:
        left = result.n_total - len(rows)
        note(f"memprobe: {left} targets of users that were left out count as not scored")
    threshold = store.manifest.config.error_threshold
    if not rows or lost > threshold * len(rows):
        note(f"memprobe: more than {threshold:.0%} of layer {result.layer} could not be scored")
        raise typer.Exit(errors.INCOMPLETE)


@with_settings("users")
def retrievals(
    resolved: Resolved,
    run: RunName,
    check: Annotated[
        str, typer.Option("--check", metavar="SYSTEM", help="The system whose searches are made.")
    ] = "longctx_full",
    queries: QueriesOption = None,
    json_output: Json = False,
) -> None:
    """Make a run's recorded searches again from its stored items, and compare item by item.

    Only a search that follows from the dump can be made again: that of `longctx_full`.
    The public release does not hold its query texts; name the published program's
    scorer, which is read and not executed. Exits with 1 when a ranking differs. Example:

    `memprobe retrievals pub --check longctx_full --queries scorer.py`
    """
    from adapters.memory.stored import SEARCHABLE
    from flows.reread import check_run, queries_from
    from flows.stored import chains_of

    resolved, store = opened(resolved, run)
    only_recovery(store, "retrievals")
    if check not in SEARCHABLE:
        raise UsageError(
            f"the search of {check!r} needs its store; from the stored items alone only "
            f"{', '.join(sorted(SEARCHABLE))} can be searched again"
        )
    with store.lock():
        chains = chains_of(store, "recover", (check,), _flag(resolved, "users"))
        found = asyncio.run(
            check_run(store, resolved, check, queries_from(queries), chains, Steps())
        )
    if json_output:
        emit_json(found.facts())
    else:
        _print_check(found)
    if not found.same:
        raise typer.Exit(errors.INCOMPLETE)


def _print_check(found: SearchCheck) -> None:
    outcomes = ", ".join(f"{n} {name}" for name, n in found.outcomes.items()) or "none recorded"
    print(f"{found.run}, {found.system}: {found.n} recorded searches: {outcomes}")
    print(f"queries: {plain(found.queries)}; {found.encoded} texts encoded", end="")
    error = found.score_error
    print("" if error is None else f"; largest difference of a score {error:.1e}")
    if found.outcomes.get("no query"):
        note(
            "memprobe: the run does not hold what was searched for; give the texts with "
            "--queries (JSON, or the published program's scorer.py)"
        )
    differing = [one for one in found.differing if one.outcome == "different"]
    for one in differing[:SHOWN]:
        print(plain(f"{one.user_id}, {one.category}/{one.dimension}:"))
        for name, ranking in (("recorded", one.recorded), ("made again", one.found)):
            places = ", ".join(
                r.item_id if r.score is None else f"{r.item_id} ({r.score:.4f})" for r in ranking
            )
            print(plain(f"  {name:<10}  {places}"))
    if len(differing) > SHOWN:
        print(f"... and {len(differing) - SHOWN} more; --json lists all")


@with_settings(
    *CHOICE, "access", "model", "model_role", "max_connections", "call_timeout", "max_cost"
)
def attribute(
    resolved: Resolved,
    run: RunName,
    layer: Layer = None,
    source: Annotated[
        str, typer.Option("--of", metavar="LAYER", help="The layer whose verdicts are attributed.")
    ] = "base",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only tell the calls, tokens and money it takes.")
    ] = False,
    json_output: Json = False,
) -> None:
    """Attribute a run's verdicts again, on its own transcripts, into a new layer.

    The published top-k rows were judged on empty transcripts; this judges them on the
    episodes. The run's oracle verdicts stand. Examples:

    `memprobe attribute pub --model openai/gpt-5.4-mini --access retrieve --dry-run`

    `memprobe attribute pub --model embedded/default --access retrieve --layer right`
    """
    from flows.preflight import check_models
    from flows.reattribute import attributing_config, planned, reattribute_run
    from flows.stored import chains_of
    from memprobe.ids import slug
    from tasks.reattribute import ROLES, Reattribution, shares
    from tasks.rejudge import check_layer

    resolved, store = opened(resolved, run)
    only_recovery(store, "attribute", "its report tells why each probe failed and where")
    roles = _roles(resolved, ROLES, "attribute")
    model = _flag(resolved, "model")
    config = attributing_config(store.manifest.config, resolved, model, roles)
    name = check_layer(layer or slug(f"attributed_{config.model_of(Role.DISCLOSURE)}")[:48])
    access = _flag(resolved, "access") or tuple(AccessMode)
    what = Reattribution(name, store.manifest.stored_layer(source), access)
    chosen = (_flag(resolved, "systems"), _flag(resolved, "users"))
    if not dry_run:
        check_models(config, ROLES)
    with store.lock():
        chains = chains_of(store, "recover", *chosen)
        plan = asyncio.run(planned(store, resolved, config, what, chains))
        if dry_run:
            _print_plan(store.name, [asdict(row) for row in plan], json_output)
            return
        calls = sum(row.calls for row in plan)
        note(f"memprobe: at most {calls} calls; those that the ledger holds are not made again")
        called = asyncio.run(reattribute_run(store, resolved, config, what, chains, Steps()))
        result = _scored(store, name)
    changed = shares(store, what.source, name)
    models = {role.value: config.model_of(role) for role in ROLES}
    facts = {"attributions": [asdict(row) for row in changed]}
    _print_layer(store, result, called, models, json_output, **facts)
    if not json_output:
        rows = [[r.system, _way(r.access_mode, r.k), r.label, r.before, r.after] for r in changed]
        table(["system", "mode", "label", source, name], rows)
    _exit_code(store, result)


def _way(mode: str, k: int | None) -> str:
    return mode if k is None else f"{mode}@{k}"


def _print_plan(run: str, rows: list[dict[str, Any]], json_output: bool) -> None:
    if json_output:
        emit_json({"run": run, "calls": rows})
        return
    columns = ("role", "model", "calls", "prompt_tokens", "completion_tokens", "cost_usd")
    table(["role", "model", "calls", "prompt", "completion", "USD"], [
        ["unknown" if row[c] is None else row[c] for c in columns] for row in rows
    ])  # fmt: skip
    note("memprobe: at most; answers that the ledger holds are not asked for again")
