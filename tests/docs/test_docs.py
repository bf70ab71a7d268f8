"""What the pages say is so: links, commands, SQL, and the figures that the code decides."""

import ast
import itertools
import re
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

import memprobe
from adapters.memory.registry import BUILT_IN
from adapters.memory.sessions import BASELINES
from flows.cli import errors
from flows.cli.app import app
from memprobe.config import RunConfig
from memprobe.metrics import RESAMPLES
from memprobe.outcomes import Reason
from memprobe.settings import ELSEWHERE, OPTIONS, resolve
from memprobe.types import AttributionLabel, FeedbackType, Role
from storage.catalog import build_catalog, query
from storage.runs import RunStore
from tasks.gate import parse_gate
from tests.report.make_run import make_run

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "deploy").rglob("*.md")]
)
FENCE = re.compile(r"^([ ]*)```(\w*)\n(.*?)^\1```", re.DOTALL | re.MULTILINE)
BY_PAGE = [pytest.param(page, id=page.name) for page in PAGES]
COMMANDS: dict[str, Any] = typer.main.get_command(app).commands  # type: ignore[attr-defined]


def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def doc(name: str) -> str:
    return text_of(ROOT / "docs" / name)


def blocks(page: Path, *languages: str) -> list[str]:
    return [body for _, language, body in FENCE.findall(text_of(page)) if language in languages]


def prose(page: Path) -> str:
    return FENCE.sub("", text_of(page))


def console(page: Path) -> Iterator[str]:
    """Command lines: in blocks, and in inline code that is nothing else."""
    for body in blocks(page, "", "console", "bash", "sh"):
        for line in body.splitlines():
            yield line.strip().removeprefix("$ ")
    yield from re.findall(r"`([^`\n]+)`", prose(page))


def calls(page: Path, program: str) -> Iterator[list[str]]:
    """The arguments of every call of a program; those with a placeholder are no calls."""
    for line in console(page):
        if not line.startswith(f"{program} ") and f" {program} " not in line.partition("#")[0]:
            continue
        try:
            words = shlex.split(line, comments=True)
        except ValueError:
            continue
        leading = list(itertools.takewhile(lambda w: "=" in w, words))
        words = words[len(leading) :]
        placeholders = any(re.fullmatch(r"[A-Z]+|\.\.\.|…", word) for word in words)
        if words[:1] == [program] and not placeholders and len(words) > 1:
            yield words[1:]


ALL_CALLS = [
    pytest.param(arguments, id=f"{page.name}:{' '.join(arguments)[:70]}")
    for page in PAGES
    for arguments in calls(page, "memprobe")
    if not arguments[0].startswith("-")
]


def anchors(page: Path) -> set[str]:
    found = re.findall(r"^#+ (.+)$", FENCE.sub("", text_of(page)), re.MULTILINE)
    kept = (re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in found)
    return set(kept)


@pytest.mark.parametrize("page", BY_PAGE)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if target.startswith("https://"):
            continue
        name, _, anchor = target.partition("#")
        file = (page.parent / name).resolve() if name else page
        assert file.exists(), f"{page.name}: {target}"
        if anchor:
            assert anchor in anchors(file), f"{page.name}: {target}"


def test_the_index_lists_every_page() -> None:
    listed = set(re.findall(r"\]\(((?:systems/)?[\w\-]+\.md)\)", doc("index.md")))
    pages = {p.relative_to(ROOT / "docs").as_posix() for p in (ROOT / "docs").rglob("*.md")}
    assert listed == pages - {"index.md"}


def test_every_built_in_system_has_a_page() -> None:
    shared = set(re.findall(r"^\| `(\w+)` \|", doc("systems/baselines.md"), re.MULTILINE))
    assert shared == set(BASELINES)
    own = {p.stem for p in (ROOT / "docs/systems").glob("*.md")} - {"baselines"}
    assert own | shared == set(BUILT_IN)


@pytest.mark.parametrize("arguments", ALL_CALLS)
def test_commands_parse(arguments: list[str], tmp_path: Path) -> None:
    name, *rest = arguments
    assert name in COMMANDS
    if not rest:
        return
    command = COMMANDS[name]
    if hasattr(command, "commands"):
        name, *rest = rest
        command = command.commands[name]
    context = command.make_context(name, list(rest))
    options = {option.name for option in OPTIONS}
    taken = {key: value for key, value in context.params.items() if key in options}
    if name != "generate":
        resolve(taken, environ={}, folder=tmp_path).config("docs")
    for expression in context.params.get("minimum") or ():
        parse_gate(expression)


def test_there_are_commands_to_check() -> None:
    seen = {param.values[0][0] for param in ALL_CALLS}
    assert seen == set(COMMANDS)
    assert len(ALL_CALLS) > 40


def test_a_wrong_option_would_be_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("```console\n$ memprobe run recovery --user 2\n```\n", encoding="utf-8")
    (arguments,) = calls(page, "memprobe")
    with pytest.raises(Exception, match="--user"):
        COMMANDS["run"].make_context("run", arguments[1:])


@pytest.mark.parametrize("page", BY_PAGE)
def test_options_and_variables_exist(page: Path) -> None:
    groups = [c.commands.values() for c in COMMANDS.values() if hasattr(c, "commands")]
    all_commands = [*COMMANDS.values(), *itertools.chain(*groups)]
    flags = {flag for c in all_commands for p in c.params for flag in p.opts}
    flags |= {"--help", "--version"}
    ours = re.findall(r"`(--[a-z][a-z\-]+)[^`]*`", prose(page))
    assert set(ours) <= flags
    known = {option.variable for option in OPTIONS} | ELSEWHERE | {"MEMPROBE_NAME"}
    assert set(re.findall(r"\bMEMPROBE_[A-Z_]*[A-Z]\b", text_of(page))) <= known


@pytest.mark.parametrize("page", BY_PAGE)
def test_make_targets_exist(page: Path) -> None:
    targets = set(re.findall(r"^([a-z\-]+):", text_of(ROOT / "Makefile"), re.MULTILINE))
    named = {arguments[0] for arguments in calls(page, "make")}
    assert named <= targets


@pytest.mark.parametrize("page", BY_PAGE)
def test_python_and_toml_are_well_formed(page: Path, tmp_path: Path) -> None:
    for body in blocks(page, "python"):
        compile(body, page.name, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    for body in blocks(page, "toml"):
        if "memprobe" in tomllib.loads(body):
            (tmp_path / "memprobe.toml").write_text(body, encoding="utf-8")
            resolve({}, environ={}, folder=tmp_path).config("docs")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunStore:
    store = make_run(tmp_path_factory.mktemp("docs") / "run", users=["user_001"])
    build_catalog(store)
    return store


# docs/read-the-results.md has a test of its own beside the report's.
STATEMENTS = [
    pytest.param(statement.strip(), id=f"{page.name}:{number}")
    for page in PAGES
    if page.name != "read-the-results.md"
    for number, statement in enumerate(
        [s for body in blocks(page, "sql") for s in body.split(";") if s.strip()]
        + [a[2] for a in calls(page, "memprobe") if a[0] == "sql" and len(a) > 2]
    )
]


@pytest.mark.parametrize("statement", STATEMENTS)
def test_sql_runs(run: RunStore, statement: str) -> None:
    if statement.startswith("select ..."):
        return
    assert query(run, statement).columns


@pytest.mark.parametrize("page", BY_PAGE)
def test_no_page_holds_a_path_of_some_machine(page: Path) -> None:
    assert not re.search(r"(?<![\w.])/(home|root|Users|tmp|work|srv|mnt)/", text_of(page))


def rows(section: str) -> list[str]:
    return re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)


def section(page: str, title: str) -> str:
    return doc(page).partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def test_every_reason_and_label_is_explained() -> None:
    page = "outcomes-and-errors.md"
    assert rows(section(page, "Reasons")) == [reason.value for reason in Reason]
    assert rows(section(page, "Attribution labels")) == [x.value for x in AttributionLabel]


def test_every_exit_code_is_explained() -> None:
    codes = [
        int(code)
        for code in re.findall(
            r"^\| (\d+) \|", section("outcomes-and-errors.md", "Exit codes"), re.MULTILINE
        )
    ]
    assert codes == [
        errors.OK,
        errors.INCOMPLETE,
        errors.USAGE,
        errors.GATE,
        errors.INTERRUPTED,
    ]


def test_concepts_name_the_reactions_and_the_roles() -> None:
    text = doc("concepts.md")
    assert all(f"`{kind.value}`" in text for kind in FeedbackType)
    used_later = {Role.READER, Role.ANSWERER}
    assert all(f"`{role.value}`" in text for role in set(Role) - used_later)


def test_retry_figures_are_the_policy_s() -> None:
    from adapters.models.retry import RetryPolicy
    from tasks.simulate import ROLE_PLAY_ATTEMPTS

    policy = RetryPolicy()
    text = section("outcomes-and-errors.md", "What is tried again")
    assert f"up to {policy.attempts} attempts" in text
    assert f"`Retry-After`, up to {policy.retry_after_cap_s:g} s" in text
    assert f"with jitter, up to {policy.cap_s:g} s" in text
    assert (policy.deadline_factor, ROLE_PLAY_ATTEMPTS) == (5.0, 3)
    assert "five times `--call-timeout`" in text
    assert "up to three samples" in text


def test_defaults_and_thresholds_are_the_code_s() -> None:
    from tasks.attribute import OK_SCORE
    from tasks.judge_check import MAX_USERS, TARGETS_PER_USER
    from tasks.reading import ANSWER_RESERVE
    from tasks.rollout import REPLY_K

    config = RunConfig(name="defaults")
    outcomes, models = doc("outcomes-and-errors.md"), doc("run-on-my-model.md")
    assert f"`--coverage-threshold` ({config.coverage_threshold:g})" in outcomes
    assert f"`--error-threshold` ({config.error_threshold:g})" in outcomes
    assert f"scored {OK_SCORE:g} or more" in outcomes
    assert f"`--max-connections` ({config.max_connections})" in models
    assert f"`--call-timeout` ({config.call_timeout:g} s)" in models
    assert f"{ANSWER_RESERVE:,} tokens kept free" in models
    concepts = doc("concepts.md")
    assert f"at most {config.max_turns} turns" in concepts
    assert f"the {REPLY_K} best items" in concepts
    assert f"{RESAMPLES:,} resamples" in concepts
    assert (TARGETS_PER_USER, MAX_USERS) == (2, 25)
    assert "two targets a user" in doc("limits.md")
    assert "at most 25 users" in doc("limits.md")


def test_deployments_pools_and_parameters_exist() -> None:
    from flows.up import HEARTBEAT_S, POOLS, SILENCE, ZOMBIES

    page = ROOT / "docs" / "deploy-and-schedule.md"
    spec = yaml.safe_load(text_of(ROOT / "deploy" / "prefect.yaml"))
    flows = {
        "memprobe": "memprobe",
        "memprobe_part": "memprobe-part",
        "paradigms": "paradigms",
        "sweep": "sweep",
    }
    deployments = {
        f"{flows[d['entrypoint'].rpartition('.')[2]]}/{d['name']}" for d in spec["deployments"]
    }
    text = text_of(page)
    named = set(re.findall(r"\b(?:memprobe|memprobe-part|paradigms|sweep)/[a-z0-9_]+\b", text))
    assert named <= deployments
    assert {d for d in deployments if not d.startswith("sweep/")} <= named
    assert set(re.findall(r"\bmemprobe-(?:cpu|gpu)\b", text)) == set(POOLS)
    assert f"`{ZOMBIES}`" in text
    assert f"after {SILENCE.seconds} s without" in text
    assert f"PREFECT_FLOWS_HEARTBEAT_FREQUENCY={HEARTBEAT_S}" in text
    tree = ast.parse(text_of(ROOT / "flows" / "recovery.py"))
    flow = next(
        node
        for node in tree.body
        if isinstance(node, ast.AsyncFunctionDef) and node.name == "memprobe"
    )
    parameters = {argument.arg for argument in flow.args.args}
    assert set(re.findall(r"-p '?(\w+)=", text)) <= parameters
    table = text.partition("| parameter | meaning |")[2].partition("\n\n")[0]
    cells = [row.split("|")[1] for row in table.splitlines() if row.startswith("| `")]
    assert {name for cell in cells for name in re.findall(r"`(\w+)`", cell)} == parameters


def test_embedded_figures_are_those_of_the_data_file() -> None:
    from adapters.models.embedded.rubric import axes, rubric

    f = rubric().held_out
    cosine, gain = f["cosine_cuts"], f["gain"]
    wrong, right = (rubric().polarity[name] for name in ("contradicting", "right"))
    said = doc("limits.md")

    def between(name: str, of: dict[str, Any] = f) -> str:
        lo, hi = of[name]
        return f"(95 % interval {lo:.3f} to {hi:.3f})"

    for line in (
        f"| quadratic weighted kappa with the published judge | {f['kappa']:.3f} "
        f"{between('kappa_interval')} | {cosine['kappa']:.3f} |",
        f"within a category, mean of five | {f['kappa_within_category']:.3f} | "
        f"{cosine['kappa_within_category']:.3f} |",
        f"| mean absolute error of a score | {f['mean_error']:.3f} | {cosine['mean_error']:.3f} |",
        f"gives {f['base_rate']:.3f} | {f['threshold_accuracy']:.3f} | "
        f"{cosine['threshold_accuracy']:.3f} |",
        f"| mean absolute error of a system's B | {f['b_error']:.3f} "
        f"{between('b_error_interval')} | {cosine['b_error']:.3f} |",
        f"keeps, of {f['pairs']} | {f['order_kept']} | {cosine['order_kept']} |",
        f"gain in kappa is {gain['kappa']:.3f} {between('interval', gain)}",
        f"On {f['users']} users, each judged by a fit on others, for the {f['n']:,} labels",
        f"labels of {len(axes().dimensions)} dimensions",
        f"of {wrong['flagged']} of {wrong['n']} labels that the judge scored 0",
        f"of {right['flagged']} of {right['n']:,} that the judge scored 0.75",
    ):
        assert line in said, line
    forms = rubric().provenance["forms"]
    worse, chosen = forms["cosine, share, opposition"], forms[rubric().provenance["form"]]
    assert f"({worse} against {chosen})" in doc("benchmarks.md")
    assert set(f["forms_chosen"]) == {rubric().provenance["form"]} == {"cosine, share"}


def test_the_scripted_user_is_as_the_limits_say() -> None:
    from adapters.models.embedded import scripted

    shares = dict(scripted._SHARES)
    assert shares[scripted.Play.NEVER] - shares[scripted.Play.BOTH] == pytest.approx(0.1)
    assert "One in ten stays silent" in doc("limits.md")


@pytest.mark.parametrize("page", BY_PAGE)
def test_extras_exist(page: Path) -> None:
    project = tomllib.loads(text_of(ROOT / "pyproject.toml"))["project"]
    named = set(re.findall(rf"{project['name']}\[(\w+)\]", text_of(page)))
    assert named <= set(project["optional-dependencies"])


def test_version_licence_and_citation_agree() -> None:
    citation = yaml.safe_load(text_of(ROOT / "CITATION.cff"))
    project = tomllib.loads(text_of(ROOT / "pyproject.toml"))["project"]
    assert citation["version"] == project["version"] == memprobe.__version__
    assert citation["license"] == project["license"]
    assert f"## [{memprobe.__version__}]" in text_of(ROOT / "CHANGELOG.md")
    readme = text_of(ROOT / "README.md")
    assert f"pip install {project['name']}" in readme
    for reference in citation["references"]:
        assert reference["url"] in readme
        assert reference["title"] in readme
