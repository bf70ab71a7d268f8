"""Settings: precedence, origins, and errors that say where the bad value is."""

from pathlib import Path
from typing import Any

import pytest

from memprobe.config import RunConfig
from memprobe.errors import SettingsError
from memprobe.settings import (
    BY_NAME,
    OPTIONS,
    RUN_OPTIONS,
    Resolved,
    Settings,
    load_settings,
    redact,
    resolve,
    shown,
)
from memprobe.types import AccessMode, Role


def looked_up(
    folder: Path,
    flags: dict[str, Any] | None = None,
    environ: dict[str, str] | None = None,
    file: str | None = None,
) -> Resolved:
    return resolve(flags or {}, environ=environ or {}, folder=folder, file=file)


def test_every_field_of_a_run_and_of_the_program_is_an_option() -> None:
    fields = (set(RunConfig.model_fields) - {"name", "suite"}) | set(Settings.model_fields)
    assert {option.target for option in OPTIONS} == fields


@pytest.mark.parametrize("option", OPTIONS, ids=lambda o: o.name)
def test_defaults_come_from_the_models_and_say_so(option: Any, tmp_path: Path) -> None:
    resolved = looked_up(tmp_path)
    assert resolved.origins[option.name].source == "default"
    if option.name != "ledger":
        assert resolved.values[option.name] == option.default


@pytest.mark.parametrize("missing", range(5))
def test_each_place_wins_over_those_below_it(missing: int, tmp_path: Path) -> None:
    """Take the places away from the top: the value is that of the highest one left."""
    flags = {"max_turns": "11"} if missing < 1 else {}
    environ = {"MEMPROBE_MAX_TURNS": "12"} if missing < 2 else {}
    if missing < 3:
        (tmp_path / ".env").write_text("MEMPROBE_MAX_TURNS=13\n")
    if missing < 4:
        (tmp_path / "memprobe.toml").write_text("[memprobe]\nmax_turns = 14\n")
    resolved = looked_up(tmp_path, flags, environ)
    assert resolved.values["max_turns"] == (11, 12, 13, 14, 25)[missing]
    source = ("flag", "environment", ".env", "file", "default")[missing]
    assert resolved.origins["max_turns"].source == source
    assert ("max_turns" in resolved.given()) == (missing < 4)


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("systems", "nomem, rag", ("nomem", "rag")),
        ("users", "2", 2),
        ("users", "user_001,user_003", ("user_001", "user_003")),
        ("users", "user_001", ("user_001",)),
        ("users", "all", None),
        ("k", "10,1,5", (1, 5, 10)),
        ("access", "retrieve", (AccessMode.RETRIEVE,)),
        ("limit", "none", None),
        ("max_cost", "0.5", 0.5),
        ("independent", "true", True),
        (
            "model_role",
            "judge=openai/a,oracle=ollama/b:7b",
            {Role.JUDGE: "openai/a", Role.ORACLE: "ollama/b:7b"},
        ),
    ],
)
def test_text_becomes_the_same_value_from_flag_and_environment(
    name: str, text: str, value: Any, tmp_path: Path
) -> None:
    assert looked_up(tmp_path, {name: text}).values[name] == value
    variable = BY_NAME[name].variable
    assert looked_up(tmp_path, environ={variable: text}).values[name] == value


def test_the_file_takes_native_values(tmp_path: Path) -> None:
    (tmp_path / "memprobe.toml").write_text(
        '[memprobe]\nsystems = ["nomem", "rag"]\nusers = ["a b", "c"]\nk = [1, 3]\n'
        'independent = true\nmax_cost = 5\n[memprobe.model_role]\njudge = "openai/x"\n'
    )
    config = looked_up(tmp_path).config("n")
    assert config.systems == ("nomem", "rag")
    assert config.users == ("a b", "c")
    assert config.k == (1, 3)
    assert config.independent is True
    assert config.max_cost == 5
    assert config.model_of(Role.JUDGE) == "openai/x"


def test_a_repeated_flag_collects_roles(tmp_path: Path) -> None:
    resolved = looked_up(tmp_path, {"model_role": ["judge=a/b", "oracle=c/d"]})
    assert resolved.values["model_role"] == {Role.JUDGE: "a/b", Role.ORACLE: "c/d"}


def test_an_empty_variable_counts_as_not_set(tmp_path: Path) -> None:
    assert looked_up(tmp_path, environ={"MEMPROBE_LIMIT": ""}).values["limit"] is None


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("k", "a", "integer"),
        ("k", "0", "greater than 0"),
        ("k", "3,3", "each k once"),
        ("users", "0", "at least one user"),
        ("users", "-3", "at least one user"),
        ("access", "dump", "dump_all"),
        ("protocol", "papr", "paper"),
        ("systems", "nomem,nomem", "each system once"),
        ("model_role", "jugde=x/y", "did you mean 'judge'?"),
        ("model_role", "judge", "ROLE=MODEL"),
        ("model_role", "judge=a/b,judge=c/d", "two models"),
        ("system_option", "depth=3", "SYSTEM.FIELD=VALUE"),
        ("system_option", "m.depth=3;m.depth=4", "two values"),
        ("max_cost", "-1", "greater than or equal to 0"),
        ("error_threshold", "nan", "less than or equal to 1"),
        ("log_level", "loud", "warning"),
    ],
)
def test_a_bad_value_names_all_places_and_the_one_that_has_it(
    name: str, text: str, expected: str, tmp_path: Path
) -> None:
    variable = BY_NAME[name].variable
    with pytest.raises(SettingsError) as caught:
        looked_up(tmp_path, environ={variable: text})
    message = str(caught.value)
    assert expected in message
    lines = message.splitlines()
    order = [BY_NAME[name].flag, f"{variable}:", f"{variable} in", f"{name} in", "default:"]
    places = [next(i for i, line in enumerate(lines[1:]) if place in line) for place in order]
    assert places == sorted(places)
    marked = [line for line in lines if "<- this one" in line]
    assert len(marked) == 1
    assert f"{variable}: {text}" in marked[0]


def test_the_place_that_wins_is_blamed_and_not_the_one_it_hides(tmp_path: Path) -> None:
    (tmp_path / "memprobe.toml").write_text("[memprobe]\nlimit = 3\n")
    with pytest.raises(SettingsError) as caught:
        looked_up(tmp_path, flags={"limit": "many"}, environ={"MEMPROBE_LIMIT": "4"})
    assert str(caught.value).startswith("--limit:")
    assert "limit in" in str(caught.value)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("[memprobe]\nsystem = 'rag'\n", "did you mean 'systems'?"),
        ("model = 'a/b'\n", "put it under [memprobe]"),
        ("[memprob]\nmodel = 'a/b'\n", "did you mean 'memprobe'?"),
        ("[memprobe]\nlimit = [3]\n", "one value"),
        ("[memprobe\n", "cannot be read"),
        ("memprobe = 3\n", "must be a table"),
    ],
)
def test_a_wrong_file_is_an_error(content: str, expected: str, tmp_path: Path) -> None:
    (tmp_path / "memprobe.toml").write_text(content)
    with pytest.raises(SettingsError, match=r"memprobe\.toml") as caught:
        looked_up(tmp_path)
    assert expected in str(caught.value)


def test_a_file_that_was_asked_for_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="no such settings file"):
        looked_up(tmp_path, file=str(tmp_path / "other.toml"))
    (tmp_path / "other.toml").write_text("[memprobe]\nseed = 3\n")
    by_flag = looked_up(tmp_path, file=str(tmp_path / "other.toml"))
    by_variable = looked_up(tmp_path, environ={"MEMPROBE_CONFIG": str(tmp_path / "other.toml")})
    assert by_flag.values["seed"] == by_variable.values["seed"] == 3


def test_an_unknown_variable_of_ours_is_a_warning_with_the_nearest_name(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("MEMPROBE_JUDGE=x\nOPENAI_API_KEY=secret\n")
    resolved = looked_up(tmp_path, environ={"MEMPROBE_MODLE": "x", "HOME": "/"})
    assert len(resolved.warnings) == 2
    assert "did you mean 'MEMPROBE_MODEL'?" in resolved.warnings[0]
    assert ".env" in resolved.warnings[1]
    assert resolved.dotenv == {"OPENAI_API_KEY": "secret"}
    assert "secret" not in "".join(resolved.warnings)


def test_the_ledger_lies_in_the_runs_folder_unless_named(tmp_path: Path) -> None:
    assert looked_up(tmp_path, {"runs": "/a/b"}).settings.ledger == "sqlite:////a/b/ledger.sqlite"
    remote = looked_up(tmp_path, {"runs": "s3://bucket/runs"})
    assert remote.settings.ledger == "sqlite:///runs/ledger.sqlite"
    named = looked_up(tmp_path, {"ledger": "postgresql+psycopg://u:pw@h/db"})
    assert named.settings.ledger == "postgresql+psycopg://u:pw@h/db"
    assert shown(named, "ledger") == "postgresql+psycopg://u:***@h/db"


def test_a_password_is_hidden_in_an_error_too(tmp_path: Path) -> None:
    bad = "postgresql://me:hunter2@host/db"
    with pytest.raises(SettingsError) as caught:
        looked_up(tmp_path, environ={"MEMPROBE_LOG_LEVEL": bad})
    assert "hunter2" not in str(caught.value)
    assert redact(bad) == "postgresql://me:***@host/db"
    assert redact("postgresql://me:a/b:c@host/db") == "postgresql://me:***@host/db"
    assert redact("postgresql://h/d?a=1&password=s3 x") == "postgresql://h/d?a=1&password=*** x"


def test_flows_get_the_fields_of_a_run_from_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MEMPROBE_MODEL", "a/b")
    settings, fields = load_settings()
    assert settings.runs == "runs"
    assert set(fields) == {option.target for option in RUN_OPTIONS}
    assert RunConfig(name="n", **fields).model == "a/b"


def test_options_of_systems_are_read_as_json_where_they_are(tmp_path: Path) -> None:
    given = ["amem.reindex=true", "my.py:Class.name=a, b", "amem.heat=0.5"]
    resolved = looked_up(tmp_path, {"system_option": given})
    assert resolved.config("r").system_options == {
        "amem": {"reindex": True, "heat": 0.5},
        "my.py:Class": {"name": "a, b"},
    }
    (tmp_path / "memprobe.toml").write_text(
        "[memprobe.system_option.amem]\nreindex = false\n", encoding="utf-8"
    )
    assert looked_up(tmp_path, {}).config("r").system_options == {"amem": {"reindex": False}}
