"""`memprobe score`: metrics again, other judges over the stored labels, the labels' direction."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flows.cli import errors
from flows.cli.options import Json, RunName, opened, with_settings
from flows.cli.output import cell, emit_json, note, table
from flows.cli.steps import Steps
from memprobe.errors import UsageError
from memprobe.settings import Resolved

if TYPE_CHECKING:
    from storage.runs import RunStore
    from tasks.score import ScoreResult


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(rich_help_panel="Results")(score)


@with_settings("model_role", "max_connections", "call_timeout", "max_cost")
def score(
    resolved: Resolved,
    run: RunName,
    judge: Annotated[
        str | None,
        typer.Option(
            metavar="MODEL,...",
            help="Judge the stored labels again with each of these models, a layer each.",
        ),
    ] = None,
    layer: Annotated[
        str | None,
        typer.Option(
            metavar="NAME,...",
            help="Names of the new layers of verdicts, one for each judge; the judges' by default.",
        ),
    ] = None,
    polarity: Annotated[
        str | None,
        typer.Option(
            metavar="MODEL",
            help="Also read the labels of directional dimensions against both ends of their axes, "
            "with this model or `embedded/judge`.",
        ),
    ] = None,
    json_output: Json = False,
) -> None:
    """Compute a run's metrics again, or judge its labels again with other judges.

    The stored labels are judged into new layers beside the first verdicts, never over
    them; the agreement of all judges is printed. `--model-role judge=MODEL` is one
    judge more. Examples:

    `memprobe score t1`

    `memprobe score t1 --model-role judge=openai/gpt-5.4 --layer second_judge`

    `memprobe score t1 --judge openai/gpt-5.4,embedded/judge --polarity embedded/judge`
    """
    from storage.catalog import build_catalog
    from tasks import chunked
    from tasks.judges import score_agreement
    from tasks.rejudge import beside
    from tasks.report import build_report
    from tasks.score import BASE, score_run

    resolved, store = opened(resolved, run)
    if store.manifest.config.suite == "paradigms":
        if judge or polarity or layer or "model_role" in resolved.given():
            raise UsageError(
                f"run {store.name!r} is of the paradigms suite: rules score it and no judge; "
                f"`memprobe reread {store.name} --model-role reader=MODEL` has another reader"
            )
        _score_paradigms(store, json_output)
        return
    judges = _judges(resolved, judge)
    layers = _layers(judges, layer, BASE)
    _check(store, resolved, [*judges, *([polarity] if polarity else [])])
    new_calls = 0
    overflown: dict[str, int] = {}
    results: list[ScoreResult] = []
    with store.lock():
        chosen = [BASE]
        if judges:
            from flows.rejudge import rejudge_run

            chosen = []
            for model, name in zip(judges, layers, strict=True):
                made, called = asyncio.run(rejudge_run(store, resolved, model, name, Steps()))
                chosen.append(made)
                new_calls += called["new_calls"]
        if polarity:
            from flows.polarity import polarity_run

            _, called = asyncio.run(polarity_run(store, resolved, polarity, Steps()))
            new_calls += called["new_calls"]
        for name in chosen:
            results.append(score_run(store, name))
            if chunked.wanted(store.manifest.config):
                score_run(store, beside(name))
                overflown[name] = chunked.overflown(store.scan("verdicts"), name)
        agreements = score_agreement(store)
        build_catalog(store)
        path = build_report(store)
    pairs = [row for row in agreements if row["scope"] == "judged" and row["system"] is None]
    if json_output:
        last = results[-1]
        facts: dict[str, Any] = {"run": store.name, **asdict(last), "coverage": last.coverage}
        facts |= {"new_calls": new_calls, "report": str(path)}
        facts["layers"] = [{**asdict(r), "coverage": r.coverage} for r in results]
        emit_json({**facts, "agreement": pairs})
    else:
        _print(store, results, new_calls, pairs, str(path))
    threshold = store.manifest.config.error_threshold
    short = [
        r.layer
        for r in results
        if r.coverage is None
        or r.n_total - r.n_scored - overflown.get(r.layer, 0) > threshold * r.n_total
    ]
    if short:
        note(f"memprobe: more than {threshold:.0%} of layer {', '.join(short)} could not be scored")
        raise typer.Exit(errors.INCOMPLETE)


def _score_paradigms(store: RunStore, json_output: bool) -> None:
    """The metrics of every layer again; prints those of the run's own."""
    from storage.catalog import build_catalog
    from tasks.paradigms.score import score_paradigms
    from tasks.report import build_report

    layers = sorted({row["layer"] for row in store.scan("answers").select(["layer"]).to_pylist()})
    if not layers:
        raise UsageError(f"run {store.name!r} has no answers: memprobe resume {store.name}")
    with store.lock():
        results = [score_paradigms(store, name) for name in layers]
        build_catalog(store)
        path = build_report(store)
    if json_output:
        made = [{**asdict(r), "coverage": r.coverage} for r in results]
        emit_json({"run": store.name, "layers": made, "report": str(path)})
        return
    _print(store, results, 0, [], str(path))


def _judges(resolved: Resolved, listed: str | None) -> list[str]:
    """The judges asked for, each once, in the order given."""
    from memprobe.types import Role

    roles = dict(resolved.values["model_role"]) if "model_role" in resolved.given() else {}
    named = roles.pop(Role.JUDGE, None)
    if roles:
        raise UsageError(
            "score judges again, and only --model-role judge=MODEL belongs to it; "
            f"{', '.join(role.value for role in roles)} would need a new run"
        )
    judges = [name.strip() for name in (listed or "").split(",")]
    if listed is not None and not all(judges):
        raise UsageError(f"--judge {listed!r}: name models, separated by commas")
    return list(dict.fromkeys([*([named] if named else []), *filter(None, judges)]))


def _layers(judges: list[str], given: str | None, base: str) -> list[str | None]:
    """A name or None for each judge; raises `UsageError` when they do not belong together."""
    if given is None:
        return [None] * len(judges)
    names = [name.strip() for name in given.split(",")]
    if not judges:
        if names == [base]:
            return []
        raise UsageError(
            "--layer needs --judge MODEL or --model-role judge=MODEL: what should judge it?"
        )
    if len(names) != len(judges) or len(set(names)) != len(names):
        raise UsageError(
            f"--layer names {len(names)} for {len(judges)} judges; give each judge one of its own"
        )
    return list(names)


def _check(store: RunStore, resolved: Resolved, models: list[str]) -> None:
    """Every model can be asked, before the first is."""
    if not models:
        return
    from flows.preflight import check_models
    from flows.rejudge import second_config
    from memprobe.types import Role

    for model in models:
        check_models(second_config(store.manifest.config, resolved, model), (Role.JUDGE,))


def _print(
    store: RunStore,
    results: list[ScoreResult],
    new_calls: int,
    pairs: list[dict[str, Any]],
    path: str,
) -> None:
    for place, result in enumerate(results):
        share = "no coverage" if result.coverage is None else f"{result.coverage:.1%} coverage"
        calls = f", {new_calls} new calls" if place == len(results) - 1 else ""
        print(
            f"{store.name}, layer {result.layer}: {result.state}, "
            f"{result.n_scored}/{result.n_total} scored, {share}{calls}"
        )
    origin = store.manifest.origin
    known = {} if origin is None else {"base": origin.layer}
    if pairs:
        table(
            ["judge", "other judge", "items", "users", "kappa", "95 %", "mean error", "same side"],
            [
                [
                    known.get(p["first"], p["first"]),
                    known.get(p["second"], p["second"]),
                    p["n_items"],
                    p["n_users"],
                    p["kappa"],
                    ""
                    if p["kappa_lo"] is None
                    else f"{cell(p['kappa_lo'])} to {cell(p['kappa_hi'])}",
                    p["mean_error"],
                    p["threshold"],
                ]
                for p in pairs
            ],
        )
    print(f"report: {path}")
