"""The command-line reference: `python -m flows.cli.reference > docs/command-line.md`."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import typer.main

from memprobe.settings import COMMON_OPTIONS, OPTIONS, PROCESS_OPTIONS, RUN_OPTIONS, Option

HEAD = """# The command line

`memprobe COMMAND --help` shows the same. This page is made from it by
`python -m flows.cli.reference > docs/command-line.md`, and a test compares the two.

## Settings

Every option of a run, and every common option, can be given in five places. The first that has it
wins, and `memprobe doctor` prints each value with its origin:

1. the flag, e.g. `--max-cost 5`
2. the environment, e.g. `MEMPROBE_MAX_COST=5` (an empty variable counts as not set)
3. `.env` in the current folder, the same names; a provider's key may stand there too
4. `memprobe.toml` in the current folder, or the file that `--config` or `MEMPROBE_CONFIG` names
5. the default

```toml
[memprobe]
runs = "runs"
systems = ["nomem", "longctx_full", "rag"]
users = 8
model = "openai/gpt-5.4-mini"
k = [1, 5, 10]
max_connections = 32
max_cost = 20.0

[memprobe.model_role]
judge = "openai/gpt-5.4"
```

An unknown key in the file is an error, an unknown `MEMPROBE_` variable a warning; both name the
nearest that there is. `none` sets an optional value back to nothing.

## Output and exit codes

What was asked for goes to stdout, everything else to stderr; with `--json` stdout is one JSON
document. While a run works, a table on stderr shows units by stage and system, calls, ledger hits,
tokens, money and the time left; where stderr is no terminal it is a plain line now and then.

| code | meaning |
| --- | --- |
| 0 | complete |
| 1 | finished with errors past `--error-threshold`, or incomplete |
| 2 | usage, or something that is needed is missing |
| 3 | a gate is not met |
| 130 | interrupted, with the state saved |

A run that is started again under its name goes on where it stopped. Systems, users, `k` and access
modes may be added; a change that would mix figures of two kinds is refused with both values.
"""


def commands() -> list[tuple[str, Any]]:
    """The commands by name, in the order of the help."""
    from flows.cli.app import app

    found: list[tuple[str, Any]] = []
    for name, command in typer.main.get_command(app).commands.items():  # type: ignore[attr-defined]
        # A group says nothing that its commands do not say.
        inner = getattr(command, "commands", None) or {"": command}
        found += [(f"{name} {own}".strip(), one) for own, one in inner.items()]
    return found


def _parts(command: Any) -> Iterator[str]:
    yield inspect.cleandoc(command.help or "")
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    options = [p for p in command.params if p.param_type_name == "option"]
    if arguments:
        rows = [(f"`{p.metavar or p.human_readable_name}`", p.help or "") for p in arguments]
        yield _table(("argument", ""), rows)
    own = [p for p in options if p.name not in COMMON]
    if own:
        yield _table(("option", ""), [(_names(p), _text(p)) for p in own])


COMMON = {option.name for option in OPTIONS} | {"config_file"}


def _names(parameter: Any) -> str:
    names = "/".join([*parameter.opts, *parameter.secondary_opts])
    value = parameter.metavar or ""
    return f"`{names} {value}`" if value else f"`{names}`"


def _text(parameter: Any) -> str:
    required = " Required." if parameter.required else ""
    shown = parameter.default
    default = "" if shown in (None, False, ()) or parameter.required else f" Default: `{shown}`."
    return f"{parameter.help or ''}{required}{default}"


def _table(head: tuple[str, str], rows: list[tuple[str, str]]) -> str:
    escaped = [[cell.replace("|", "\\|") for cell in row] for row in rows]
    lines = [f"| {head[0]} | {head[1]} |", "| --- | --- |"]
    return "\n".join([*lines, *(f"| {a} | {b} |" for a, b in escaped)])


def _setting(option: Option) -> tuple[str, str]:
    from memprobe.setting_values import display

    shown = display(option.default)
    default = "" if shown in ("(none)", "", "false") else f" Default: `{shown}`."
    value = f" {option.metavar}" if option.metavar else ""
    return f"`{option.flag}{value}`", f"{option.help}{default}"


def _shared(command: Any) -> str:
    # A command's own option may have the flag of a run's option and another meaning.
    flags = {flag for p in command.params if p.name in COMMON for flag in p.opts}
    taken = [o.flag for o in RUN_OPTIONS if o.flag in flags]
    missing = [o.flag for o in RUN_OPTIONS if o.flag not in flags]
    also = [o.flag for o in PROCESS_OPTIONS if o.flag in flags]
    rest = "the options of processes, and the common options" if also else "and the common options"
    if not taken:
        return "Takes the common options."
    if len(missing) < len(taken) / 2:
        but = f" but {', '.join(f'`{flag}`' for flag in missing)}" if missing else ""
        return f"Takes all options of a run{but}, {rest}."
    return f"Takes {', '.join(f'`{flag}`' for flag in taken)}, {rest}."


def reference() -> str:
    """The whole page."""
    parts = [HEAD.rstrip()]
    for panel in ("What is measured", "Models", "Limits"):
        rows = [_setting(o) for o in OPTIONS if o.panel == panel]
        parts += [
            f"## Options of a run: {panel[0].lower()}{panel[1:]}",
            _table(("option", ""), rows),
        ]
    processes = [_setting(o) for o in PROCESS_OPTIONS]
    parts += ["## Options of processes", _table(("option", ""), processes)]
    rows = [_setting(o) for o in COMMON_OPTIONS]
    rows.append(("`--config FILE`", "Settings file instead of ./memprobe.toml."))
    parts += ["## Common options", _table(("option", ""), rows), "## Commands"]
    for name, command in commands():
        parts += [f"### memprobe {name}", *_parts(command), _shared(command)]
    return "\n\n".join(part for part in parts if part) + "\n"


if __name__ == "__main__":
    print(reference(), end="")
