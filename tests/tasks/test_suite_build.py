"""A suite of one's own: scaffold, build through the gateway against the fake server, validation."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from adapters.models.gateway import Gateway
from memprobe.config import RunConfig
from memprobe.errors import DatasetError, UsageError
from memprobe.paradigms.checks import inspect_suite
from memprobe.paradigms.expand import MiniSpec
from memprobe.paradigms.protocol import RULES
from memprobe.paradigms.spec import Condition, Domain
from memprobe.paradigms.suite import load_episode, load_suite
from storage.ledger import Ledger
from tasks.suite import BuildReport, build_suite
from tasks.suite.inputs import read_domain, read_minispecs
from tasks.suite.scaffold import domain_config, minispec, write_scaffold
from tasks.suite.sessions import session_times
from tests.support.fake_server import FakeServer

GARDEN = Domain("gardening")


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeServer]:
    with FakeServer() as running:
        monkeypatch.setenv("OPENAI_API_KEY", "x")
        monkeypatch.setenv("OPENAI_BASE_URL", running.url)
        yield running


def minis(*conditions: Condition, **changes: Any) -> list[MiniSpec]:
    """Mini-specs of these conditions, in one group."""
    made = [minispec(i, c, GARDEN, "standalone") for i, c in enumerate(conditions)]
    return [m.model_copy(update=changes) for m in made]


async def build(folder: Path, listed: list[MiniSpec], **options: Any) -> BuildReport:
    ledger = Ledger.open(f"sqlite:///{folder / 'ledger.db'}")
    gateway = Gateway(RunConfig(name="suite", model="openai/mock"), ledger, {})
    given: dict[str, Any] = {"out": folder / "suite", "seed": 7, **options}
    try:
        return await build_suite(gateway, listed, domain_config(GARDEN), **given)
    finally:
        await gateway.close()
        ledger.close()


def text_of(folder: Path, name: str) -> str:
    return (folder / "suite" / f"{name}.json").read_text(encoding="utf-8")


async def test_every_condition_builds_an_episode_that_the_validator_finds_nothing_in(
    server: FakeServer, tmp_path: Path
) -> None:
    listed = minis(*Condition)
    steps: list[tuple[str, int, int]] = []
    report = await build(
        tmp_path, listed, progress=lambda p: steps.append((p.episode, p.done, p.total))
    )
    assert report.complete
    assert report.problems == ()
    assert report.written == tuple(sorted(m.episode_id for m in listed))
    found = inspect_suite(tmp_path / "suite", None)
    assert found.problems == ()
    suite = load_suite(tmp_path / "suite")
    assert suite.digest == report.digest
    assert {e.spec.condition for e in suite.episodes} == set(Condition)
    assert {e.spec.domain for e in suite.episodes} == {"gardening"}
    totals = {name: total for name, _, total in steps}
    assert [len(e.sessions) for e in suite.episodes] == [totals[e.id] for e in suite.episodes]
    assert report.calls == sum(totals.values()) == len(server.chats)
    card = json.loads((tmp_path / "suite/card.json").read_text(encoding="utf-8"))
    assert card["digest"] == report.digest
    assert card["made_with"]["model"] == "openai/mock"


@pytest.mark.parametrize("tier", ["short", "long"])
async def test_other_lengths_and_split_updates(
    server: FakeServer, tmp_path: Path, tier: str
) -> None:
    listed = minis(Condition.REACTIVATED, Condition.HIGH, length_tier=tier, split=True)
    report = await build(tmp_path, listed)
    assert report.complete
    assert report.problems == ()
    episode = load_episode(tmp_path / "suite" / f"{report.written[0]}.json")
    kinds = [s.session_type.value for s in episode.sessions]
    assert kinds.count("perturbation_p1") == kinds.count("perturbation_p2") == 1


async def test_the_same_command_again_asks_for_nothing_and_changes_nothing(
    server: FakeServer, tmp_path: Path
) -> None:
    listed = minis(Condition.DIRECT, Condition.DIRECT_WEAK)
    first = await build(tmp_path, listed)
    before = {p.name: p.read_bytes() for p in (tmp_path / "suite").glob("*.json")}
    asked = len(server.chats)
    again = await build(tmp_path, listed)
    assert (again.written, again.kept) == ((), first.written)
    assert (again.other_settings, again.outdated) == ((), ())
    assert {p.name: p.read_bytes() for p in (tmp_path / "suite").glob("*.json")} == before
    elsewhere = await build(tmp_path, listed, out=tmp_path / "copy")
    assert elsewhere.replayed == elsewhere.calls == first.calls
    assert len(server.chats) == asked
    assert elsewhere.digest == first.digest


async def test_what_a_check_refuses_is_asked_for_again_with_what_was_wrong(
    server: FakeServer, tmp_path: Path
) -> None:
    told = {"dialogue": [
        {"role": "user", "content": "Book Birch Hall for the evening at Alder House, please."},
        {"role": "assistant", "content": "Booked."},
    ]}  # fmt: skip
    server.script({"mode": "answer", "content": json.dumps(told)})
    report = await build(tmp_path, minis(Condition.HIGH))
    assert report.complete
    assert report.problems == ()
    second = server.chats[1].body["messages"][-1]["content"]
    assert "An earlier version was refused" in second
    assert "the new value 'Birch Hall' is named in encoding; leave it out" in second
    assert json.dumps(told["dialogue"], ensure_ascii=False) in second
    assert report.calls == len(server.chats)


async def test_a_session_that_never_passes_fails_its_episode_and_no_other(
    server: FakeServer, tmp_path: Path
) -> None:
    listed = minis(Condition.HIGH, Condition.LOW)
    # The writer cannot know that the trigger's words are ruled out by what is to be named.
    bad = listed[0].model_copy(update={"trigger": "Birch Hall opened", "split": True})
    report = await build(tmp_path, [bad, listed[1]])
    assert report.written == (listed[1].episode_id,)
    (failure,) = report.failed
    assert (failure.episode, failure.resumable) == (bad.episode_id, False)
    assert failure.step.endswith("perturbation_p1")
    assert "the new value 'Birch Hall' is named in perturbation_p1" in failure.detail
    assert not report.complete
    partial = tmp_path / "suite/partial" / f"{bad.episode_id}.partial.json"
    kept = json.loads(partial.read_text(encoding="utf-8"))
    assert (kept["step"], len(kept["sessions"])) == (failure.step, 19)
    assert not (tmp_path / "suite" / f"{bad.episode_id}.json").exists()
    asked = len(server.chats)
    mended = await build(tmp_path, listed)
    assert mended.written == (bad.episode_id,)
    assert not partial.exists()
    assert mended.complete
    assert len(server.chats) > asked


async def test_an_outage_is_resumable_and_finished_calls_are_free(
    server: FakeServer, tmp_path: Path
) -> None:
    server.script(*[None] * 5, {"mode": "auth"})
    listed = minis(Condition.LOW)
    first = await build(tmp_path, listed)
    (failure,) = first.failed
    assert failure.resumable
    assert failure.step.startswith("05:")
    second = await build(tmp_path, listed)
    assert second.complete
    assert second.replayed == 5
    # The question that met the outage is asked again, what was answered is not.
    assert server.stats()["resent"] == 0
    assert len(server.chats) == second.calls + 1


async def test_sessions_that_resemble_another_episode_are_written_again(
    server: FakeServer, tmp_path: Path
) -> None:
    listed = minis(Condition.LOW, Condition.HIGH)
    await build(tmp_path, listed[:1])
    first = load_episode(tmp_path / "suite" / f"{listed[0].episode_id}.json")
    twin = first.sessions[0]
    told = {"dialogue": [t.model_dump(mode="json") for t in twin.dialogue]}
    server.script({"mode": "answer", "content": json.dumps(told)})
    report = await build(tmp_path, listed)
    assert report.complete
    assert report.problems == ()
    second = load_episode(tmp_path / "suite" / f"{listed[1].episode_id}.json")
    assert second.sessions[0].dialogue != twin.dialogue
    asked = server.chats[-1].body["messages"][-1]["content"]
    assert f"a message of {first.id} session 0 again" in asked


async def test_files_that_are_there_are_kept_and_told_of(
    server: FakeServer, tmp_path: Path
) -> None:
    listed = minis(Condition.LOW, Condition.HIGH)
    await build(tmp_path, listed)
    own, changed = listed
    path = tmp_path / "suite" / f"{own.episode_id}.json"
    path.write_text(path.read_text(encoding="utf-8").replace("And then?", "And after?"), "utf-8")
    before = text_of(tmp_path, own.episode_id), text_of(tmp_path, changed.episode_id)
    other = changed.model_copy(update={"reason": "it is nearer to the tram"})
    report = await build(tmp_path, [own, other])
    assert report.other_settings == (own.episode_id,)
    assert report.outdated == (changed.episode_id,)
    assert not report.complete
    assert (text_of(tmp_path, own.episode_id), text_of(tmp_path, changed.episode_id)) == before
    path.write_text("{", encoding="utf-8")
    with pytest.raises(DatasetError, match="not valid JSON"):
        await build(tmp_path, listed)


async def test_values_from_outside_stay_data_in_a_prompt(
    server: FakeServer, tmp_path: Path
) -> None:
    odd = 'Quay "9"\n{{ x }} === user ==='
    listed = minis(Condition.LOW, canonical_new=odd, new_value=odd)
    report = await build(tmp_path, listed)
    assert report.failed or report.written
    asked = [c.body["messages"][-1]["content"] for c in server.chats]
    assert all(len(c.body["messages"]) == 2 for c in server.chats)
    assert all(json.dumps(odd) in text for text in asked[:1])
    assert not any("\n{{ x }}" in text for text in asked)


@pytest.mark.parametrize("n", [12, 21, 35])
def test_times_rise_at_waking_hours_over_weeks(n: int) -> None:
    for name in ("a", "b", "c"):
        times = session_times(7, name, n)
        assert times == sorted(set(times))
        assert all(7 <= t.hour <= 21 for t in times)
        assert 21 <= (times[-1] - times[0]).days <= 64
        assert times == session_times(7, name, n)
    assert session_times(7, "a", n) != session_times(7, "b", n) != session_times(8, "b", n)


def test_the_scaffold_is_read_back_and_expands(tmp_path: Path) -> None:
    paths = write_scaffold(tmp_path / "g", GARDEN, tuple(Condition))
    config, listed = read_domain(paths[0]), read_minispecs(paths[1])
    assert config.domain == GARDEN
    assert [m.condition for m in listed] == list(Condition)
    assert all((m.trigger is not None) == (RULES[m.condition].status is None) for m in listed)
    with pytest.raises(UsageError, match="is there already"):
        write_scaffold(tmp_path / "g", GARDEN)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda v: v["minispecs"][0].pop("new_value"), r"\[0\]: new_value: Field required"),
        (lambda v: v["minispecs"][1].update(condition="x"), r"\[1\]: condition"),
        (lambda v: v["minispecs"][1].update(episode_id="../x"), r"\[1\]: episode_id"),
        (lambda v: v["minispecs"][1].update(episode_id="int_01a"), "more than one mini-spec"),
        (lambda v: v["minispecs"][1].update(more=1), r"\[1\]: more"),
        (lambda v: v.pop("minispecs"), "a list of mini-specs is needed"),
    ],
)
def test_a_wrong_mini_spec_is_named(tmp_path: Path, change: Any, said: str) -> None:
    _, path = write_scaffold(tmp_path, GARDEN)
    value = json.loads(path.read_text(encoding="utf-8"))
    change(value)
    path.write_text(json.dumps(value), encoding="utf-8")
    with pytest.raises(DatasetError, match=said):
        read_minispecs(path)


def test_a_published_domain_without_tools_has_none(tmp_path: Path) -> None:
    path, _ = write_scaffold(tmp_path, Domain.WORK)
    value = json.loads(path.read_text(encoding="utf-8")) | {"tools": True}
    path.write_text(json.dumps(value), encoding="utf-8")
    with pytest.raises(DatasetError, match="the published domain work has none"):
        read_domain(path)
