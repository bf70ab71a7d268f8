"""`run`, `resume` and `plan`."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from flows.cli import errors
from flows.cli.options import Json, RunName, opened, with_settings
from flows.cli.output import emit_json, note, plain, table
from flows.cli.summaries import counted, summary_table
from memprobe.config import RunConfig
from memprobe.errors import UsageError
from memprobe.outcomes import Reason
from memprobe.setting_values import nearest
from memprobe.settings import PROCESS_OPTIONS, RUN_OPTIONS, Resolved, redact
from memprobe.types import SUITES, SuiteName

RUN = tuple(option.name for option in RUN_OPTIONS)
PROCESSES = tuple(option.name for option in PROCESS_OPTIONS)
LIMITS = ("max_connections", "call_timeout", "max_cost")
Suite = Annotated[str, typer.Argument(metavar="[SUITE]", help="The suite: recovery or paradigms.")]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command(rich_help_panel="Measure")(run)
    app.command(rich_help_panel="Measure")(resume)
    app.command(rich_help_panel="Measure")(plan)


def known_suite(suite: str) -> SuiteName:
    """The suite of that name; raises `UsageError` for one that this version does not have."""
    for known in SUITES:
        if suite == known:
            return known
    raise UsageError(
        f"there is no suite {suite!r}{nearest(suite, SUITES)}; there are: {', '.join(SUITES)}"
    )


def fresh_name(suite: str) -> str:
    """A readable name that sorts by time."""
    return f"{suite}_{datetime.now(UTC):%Y%m%d_%H%M%S}"


@with_settings(*RUN, *PROCESSES)
def run(
    resolved: Resolved,
    suite: Suite = "recovery",
    name: Annotated[
        str | None,
        typer.Option(
            "--run",
            metavar="NAME",
            help="Name of the run; SUITE_DATE_TIME when not given. The same name goes on with it.",
        ),
    ] = None,
    json_output: Json = False,
) -> None:
    """Run a suite to its report; the same command again resumes it.

    recovery: can a hidden user state be rebuilt from a memory? paradigms: does a memory
    change when it should, and hold when it should?

    Examples:

    `memprobe run recovery --systems nomem,longctx_full,rag --users 2 --run t1`

    `memprobe run recovery --model openai/gpt-5.4-mini --model-role judge=openai/gpt-5.4`

    `memprobe run recovery --systems path/to/my_memory.py:MyMemory,nomem`

    `memprobe run paradigms --systems full_context,naive_rag,always_update --run p1`

    `memprobe run paradigms --model openai/gpt-5.4-mini --systems mem0,graphiti --limit 8`
    """
    config = resolved.config(name or fresh_name(suite), known_suite(suite))
    execute(config, resolved, json_output)


@with_settings("k", *LIMITS, *PROCESSES)
def resume(resolved: Resolved, run: RunName, json_output: Json = False) -> None:
    """Go on with a run under its own settings; finished units and calls are not repeated.

    `--k` reads the stored memories by more k, beside those that the run has; no episode
    is played again. Examples:

    `memprobe resume t1 --max-cost 10`

    `memprobe resume t1 --k 1,3,5,10`
    """
    resolved, store = opened(resolved, run)
    stored = store.manifest.config
    changes = {name: resolved.values[name] for name in resolved.given() & set(LIMITS)}
    # A k of the environment or a file is meant for new runs.
    if resolved.origins["k"].source == "flag":
        changes["k"] = resolved.values["k"]
    execute(stored.model_copy(update=changes), resolved, json_output)


def execute(config: RunConfig, resolved: Resolved, json_output: bool) -> None:
    """Run to the end with a live display, print the result, exit with its code."""
    warn_of_suite(config)
    from flows.cli.live import Display
    from flows.launch import run_suite
    from flows.progress import Progress

    progress = Progress()
    try:
        with Display(progress, config.name):
            result = run_suite(config, resolved.settings, progress)
    except KeyboardInterrupt:
        note(stopped(config.name))
        raise typer.Exit(errors.INTERRUPTED) from None
    fields = result.as_dict()
    if json_output:
        emit_json(fields)
    else:
        show(fields)
    n_scored = sum(row["n_scored"] for row in result.summary)
    code = outcome_code(result.status, result.error_share, config.error_threshold, n_scored)
    explain(fields, code, config)
    if code:
        raise typer.Exit(code)


def warn_of_suite(config: RunConfig) -> None:
    """Say that a suite of one's own does not hold its design: its figures mean little then."""
    if config.suite != "paradigms" or config.dataset is None:
        return
    from flows.workloads import suite_of
    from memprobe.paradigms.checks import check_suite

    suite = suite_of(config)
    found = check_suite(suite.name, suite.episodes)
    errors = sum(problem.severity == "error" for problem in found)
    if errors:
        note(
            f"memprobe: the suite does not hold its design ({counted(errors, 'error', 'errors')}); "
            f"`memprobe suite validate {config.dataset}` lists them"
        )


def outcome_code(status: str, error_share: float, threshold: float, n_scored: int) -> int:
    """The exit code of a run that ended so. One that measured nothing did not succeed."""
    if status == "interrupted":
        return errors.INTERRUPTED
    if status != "complete" or error_share > threshold or not n_scored:
        return errors.INCOMPLETE
    return errors.OK


def show(fields: dict[str, Any]) -> None:
    """The result for people."""
    columns, rows = summary_table(fields["summary"])
    rows = [["-" if value is None else value for value in row] for row in rows]
    table(columns, rows, f"run {fields['run']}: {fields['status']}")
    print(
        f"{fields['units_done']} of {counted(fields['units_total'], 'unit', 'units')}, "
        f"{counted(fields['new_calls'], 'new call', 'new calls')},"
        f" {fields['ledger_hits']} from the ledger"
    )
    for text in unscored_lines(fields):
        print(text)
    if fields["report"]:
        print(f"report: {fields['report']}")


DETAIL_CHARS = 160


def unscored_lines(fields: dict[str, Any]) -> list[str]:
    """What could not be scored, by table and reason, and the commonest detail of each."""
    if not fields["unscored"]:
        return []
    counts = []
    details = []
    for key, n in fields["unscored"].items():
        table_name, _, reason = key.partition("/")
        counts.append(f"{key} {n}")
        if reason == Reason.NOT_JUDGED.value:
            if table_name == "preference_scores":
                counts[-1] += " (the embedded profile rates no preferences)"
            else:
                counts[-1] += " (needs a model)"
            continue
        detail = " ".join(plain(redact(fields["unscored_examples"].get(key, ""))).split())
        if detail:
            cut = "…" if len(detail) > DETAIL_CHARS else ""
            details.append(f"  {key}: {detail[:DETAIL_CHARS]}{cut}")
    return ["unscored: " + ", ".join(counts), *details]


def stopped(name: str) -> str:
    """What a run that was stopped leaves, and how it goes on."""
    return (
        "memprobe: stopped; finished calls, units and episodes are kept. "
        f"`memprobe resume {name}` goes on from there"
    )


def explain(fields: dict[str, Any], code: int, config: RunConfig) -> None:
    """Why the run did not end with 0, and what to do next, on stderr."""
    for failure in fields["failures"]:
        note(f"memprobe: {failure}")
    if code == errors.INTERRUPTED:
        note(stopped(config.name))
    if fields["units_to_retry"] and code != errors.INTERRUPTED:
        note(
            f"memprobe: {counted(fields['units_to_retry'], 'unit holds', 'units hold')} items that "
            "failed for a reason that may have passed; "
            f"`memprobe resume {config.name}` tries them again"
        )
    if code not in (errors.OK, errors.INTERRUPTED) and fields["status"] != "complete":
        missing = fields["units_total"] - fields["units_done"]
        note(
            f"memprobe: {counted(missing, 'unit is', 'units are')} not done; the rest is kept. "
            f"`memprobe resume {config.name}` tries them again"
        )
    elif code == errors.INCOMPLETE and not fields["summary"]:
        note(
            "memprobe: no scored samples: none of the systems has the chosen --access modes; "
            "`memprobe systems` lists what they have"
        )
    elif code == errors.INCOMPLETE:
        note(
            f"memprobe: {fields['error_share']:.1%} of the items could not be scored, more than "
            f"--error-threshold {config.error_threshold:g}; `memprobe status {config.name}` "
            "shows what was kept, the report counts them by reason"
        )


@with_settings(*RUN)
def plan(resolved: Resolved, suite: Suite = "recovery", json_output: Json = False) -> None:
    """Estimate calls, tokens, money and time of a run. Makes no call and starts no server.

    Takes the options of `run`. Example:

    `memprobe plan recovery --model openai/gpt-5.4-mini --systems nomem,longctx_full --users 50`
    """
    from flows.cli.plan import plan_run, print_plan

    config = resolved.config("plan", known_suite(suite))
    made = plan_run(config)
    if json_output:
        emit_json(made.as_dict())
    else:
        print_plan(made)
