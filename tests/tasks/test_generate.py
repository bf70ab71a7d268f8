"""Generation of users, driven by a model double behind the chat port."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from adapters.models.gateway import Gateway
from adapters.models.minilm import MiniLM
from memprobe.chat import ChatRequest
from memprobe.config import RunConfig
from memprobe.dataset import BankEntry, Pool, load_dataset, load_pool, load_user
from memprobe.errors import BudgetExceeded, CallFailed, DatasetError, UsageError
from memprobe.outcomes import Reason
from memprobe.types import Category, Role
from memprobe.validation import validate_dataset, validate_user
from storage.bundled import recovery_dir
from storage.ledger import Ledger
from tasks.generate import PROMPTS, GenerationReport, Progress, generate_users
from tasks.generate.asking import ATTEMPTS
from tasks.generate.persona import AGES, _occupations, draw
from tasks.generate.tasks import leaks
from tests.support import fake_writer
from tests.support.fake_server import FakeServer
from tests.support.writer_model import Killed, Script, WriterModel


@pytest.fixture(scope="module")
def embedder() -> MiniLM:
    return MiniLM()


@pytest.fixture(scope="module")
def full_pool() -> Pool:
    return load_pool(recovery_dir() / "pool.json")


@pytest.fixture(scope="module")
def pool(full_pool: Pool) -> Pool:
    """The bundled pool with few slots: seven tasks a user."""
    slots = {Category.SKILL: 3, Category.KNOWLEDGE: 1}
    return full_pool.model_copy(
        update={
            "categories": tuple(
                c.model_copy(update={"slots": slots.get(c.name, 1)}) for c in full_pool.categories
            )
        }
    )


@pytest.fixture
def generate(embedder: MiniLM, pool: Pool, tmp_path: Path) -> Callable[..., Any]:
    async def run(model: WriterModel, **options: Any) -> GenerationReport:
        options = {"count": 1, "seed": 7, "out": tmp_path / "made", "pool": pool, **options}
        return await generate_users(model, embedder, options.pop("pool"), **options)

    return run


def first_task_edits(*verdicts: str) -> Script:
    """The critic's verdicts on the first task's drafts; each edit is a text of its own."""

    def script(request: ChatRequest, n: int) -> dict[str, Any] | None:
        item = request.asker.item
        if item.startswith("task:01") and item.endswith("critic"):
            return {"inferred_trait": f"guess {n}", "verdict": verdicts[n], "why": "so it reads"}
        if item.startswith("task:01") and item.endswith("edit"):
            return {"task": f"Where does {fake_writer.MARKS[n]} paint go?", "rationale": "still"}
        return None

    return script


async def test_generated_users_are_a_clean_data_set(
    generate: Callable[..., Any], full_pool: Pool
) -> None:
    model = WriterModel()
    steps: list[Progress] = []
    report = await generate(model, count=2, pool=full_pool, progress=steps.append)
    assert report.complete
    assert report.written == ("user_001", "user_002")
    dataset = load_dataset(report.out)
    assert dataset.digest == report.digest
    assert validate_dataset(dataset) == []
    for user in dataset.users:
        assert [len(user.memory_bank[c]) for c in Category] == [7, 7, 7, 5, 5]
        assert [t.target_dimension for t in user.tasks] == [e.dimension for _, e in user.targets()]
        assert all(len(t.critic) == 1 and t.pipeline_note == "" for t in user.tasks)
        assert all(t.script is None for t in user.tasks)
        assert user.generation["model"] == "double/writer"
        assert user.generation["seed"] == "7"
        assert all(f"prompt.{name}" in user.generation for name in PROMPTS)
    assert steps[-1].done == steps[-1].total == 37
    assert report.digest in (report.out / "CARD.md").read_text()


async def test_tasks_see_what_came_before_and_not_the_story(generate: Callable[..., Any]) -> None:
    model = WriterModel()
    report = await generate(model)
    user = load_user(report.out / "users" / "user_001.json")
    last = model.of(r"^task:07:.*write")[0].messages[1].content
    assert all(json.dumps(t.task) in last for t in user.tasks[:-1])
    assert user.profile.personal_story.personal_story[:60] not in last
    third = model.of("^bank:episodic")[0].messages[1].content
    assert all(e.short in third for e in user.memory_bank[Category.KNOWLEDGE])


async def test_the_critic_sees_the_task_and_the_category_only(
    generate: Callable[..., Any],
) -> None:
    model = WriterModel()
    report = await generate(model)
    user = load_user(report.out / "users" / "user_001.json")
    for request, task in zip(model.of("critic$"), user.tasks, strict=True):
        assert set(request.variables) == {"task", "category", "refused"}
        seen = "".join(m.content for m in request.messages)
        assert task.task in seen
        assert task.target_short not in seen
        assert task.target_dimension not in seen


def _short_by_one(answer: dict[str, Any]) -> dict[str, Any]:
    return {"dims": answer["dims"][:-1]}


def _one_too_many(answer: dict[str, Any]) -> dict[str, Any]:
    extra = {
        **answer["dims"][0],
        "name": "writing_skill",
        "short": "Scrawls",
        "explanation": "A. B.",
    }
    return {"dims": [*answer["dims"], extra]}


def _stranger(answer: dict[str, Any]) -> dict[str, Any]:
    return {"dims": [{**answer["dims"][0], "name": "juggling_skill"}, *answer["dims"][1:]]}


def _twice(answer: dict[str, Any]) -> dict[str, Any]:
    again = {**answer["dims"][1], "name": answer["dims"][0]["name"]}
    return {"dims": [answer["dims"][0], again, *answer["dims"][2:]]}


def _wordy(answer: dict[str, Any]) -> dict[str, Any]:
    return {"dims": [{**answer["dims"][0], "short": "word " * 16}, *answer["dims"][1:]]}


def _curt(answer: dict[str, Any]) -> dict[str, Any]:
    return {"dims": [{**answer["dims"][0], "explanation": "One only."}, *answer["dims"][1:]]}


def _blank(answer: dict[str, Any]) -> dict[str, Any]:
    return {"dims": [{**answer["dims"][0], "short": "  "}, *answer["dims"][1:]]}


FAULTS = {
    _short_by_one: "2 dimensions, exactly 3 needed",
    _one_too_many: "4 dimensions, exactly 3 needed",
    _stranger: "'juggling_skill' is no dimension",
    _twice: "is chosen 2 times",
    _wordy: "16 words, at most 15",
    _curt: "1 sentences, 2 to 4 needed",
    _blank: "blank",
}


def spoil(fault: Callable[[dict[str, Any]], dict[str, Any]], times: int) -> Script:
    def script(request: ChatRequest, n: int) -> dict[str, Any] | None:
        if request.asker.item != "bank:skill_memory" or n >= times:
            return None
        system, user = (m.content for m in request.messages)
        return fault(json.loads(fake_writer.answer(system, user)))

    return script


@pytest.mark.parametrize("fault", FAULTS, ids=lambda f: f.__name__)
async def test_a_wrong_bank_is_refused_with_the_finding_and_asked_again(
    generate: Callable[..., Any], pool: Pool, fault: Callable[..., Any]
) -> None:
    model = WriterModel(spoil(fault, 1))
    report = await generate(model)
    assert report.complete
    first, second = model.of("^bank:skill")
    assert FAULTS[fault] not in first.messages[1].content
    assert FAULTS[fault] in second.messages[1].content
    assert validate_user(load_user(report.out / "users" / "user_001.json"), pool) == []


@pytest.mark.parametrize("fault", [_short_by_one, _stranger, _twice], ids=lambda f: f.__name__)
async def test_a_bank_that_stays_wrong_fails_the_user_and_keeps_the_reason(
    generate: Callable[..., Any], fault: Callable[..., Any]
) -> None:
    model = WriterModel(spoil(fault, ATTEMPTS))
    report = await generate(model)
    (failure,) = report.failed
    assert failure.step == "bank:skill_memory"
    assert not failure.resumable
    assert FAULTS[fault] in failure.detail
    assert len(model.of("^bank:skill")) == ATTEMPTS
    assert not (report.out / "users" / "user_001.json").exists()
    kept = json.loads((report.out / "partial" / "user_001.partial.json").read_text())
    assert kept["reason"] == "invalid_output"
    assert kept["profile"]["location"]["city"]
    assert kept["memory_bank"] == {}


async def test_an_edit_is_criticised_again_until_neutral(generate: Callable[..., Any]) -> None:
    model = WriterModel(first_task_edits("fishing", "fishing", "neutral"))
    report = await generate(model)
    task = load_user(report.out / "users" / "user_001.json").tasks[0]
    assert [v.verdict for v in task.critic] == ["fishing", "fishing", "neutral"]
    assert task.pipeline_note == "edited_after_fishing_flag"
    assert task.task == "Where does basalt paint go?"
    edits = model.of("^task:01:.*edit")
    assert "guess 0" in edits[0].messages[1].content
    assert "guess 1" in edits[1].messages[1].content
    assert "Where does amber paint go?" in edits[1].messages[1].content


async def test_a_spent_edit_budget_is_noted_with_all_verdicts(
    generate: Callable[..., Any],
) -> None:
    model = WriterModel(first_task_edits("fishing", "fishing", "fishing", "fishing"))
    report = await generate(model, edit_budget=2)
    task = load_user(report.out / "users" / "user_001.json").tasks[0]
    assert [v.verdict for v in task.critic] == ["fishing"] * 3
    assert task.pipeline_note == "edit_budget_spent"
    assert len(model.of("^task:01:.*edit")) == 2


def leak_first_task(drafts: int) -> Script:
    def script(request: ChatRequest, n: int) -> dict[str, Any] | None:
        item = request.asker.item
        if not item.startswith("task:01") or item.endswith("critic"):
            return None
        if item.endswith("edit") and n >= drafts:
            return None
        secret = str(request.variables["short"]).split()[0]
        return {"task": f"Is {secret.lower()} {n} a nice word?", "rationale": "It leaks."}

    return script


async def test_a_shared_word_is_caught_though_the_critic_is_content(
    generate: Callable[..., Any], pool: Pool
) -> None:
    model = WriterModel(leak_first_task(0))
    report = await generate(model)
    user = load_user(report.out / "users" / "user_001.json")
    assert validate_user(user, pool) == []
    assert [v.verdict for v in user.tasks[0].critic] == ["neutral", "neutral"]
    assert user.tasks[0].pipeline_note == "edited_after_fishing_flag"
    secret = user.tasks[0].target_short.split()[0].lower()
    (edit,) = model.of("^task:01:.*edit")
    assert f"uses words of the hidden fact: {secret}" in edit.messages[1].content


async def test_a_task_that_never_stops_leaking_is_not_kept(generate: Callable[..., Any]) -> None:
    model = WriterModel(leak_first_task(99))
    report = await generate(model, edit_budget=1)
    (failure,) = report.failed
    assert failure.step.startswith("task:01")
    assert "still leak" in failure.detail
    assert len(model.of("^task:01:.*write")) == 3
    kept = json.loads((report.out / "partial" / "user_001.partial.json").read_text())
    assert kept["tasks"] == []
    assert len(kept["memory_bank"]) == 5


async def test_a_paraphrase_without_a_common_word_is_measured(embedder: MiniLM) -> None:
    entry = BankEntry(
        dimension="financial_shock_event",
        short="Lost savings gambling on horse races",
        explanation="Betting at the racetrack emptied the account. Wagers stopped afterwards.",
    )
    said = await leaks("A horserace wager cost me money, I bet and lose", entry, embedder)
    assert any("similarity" in s for s in said)
    assert await leaks("Which soup suits a wet Sunday?", entry, embedder) == []


async def test_an_unreadable_critic_is_asked_again_with_another_sample(
    generate: Callable[..., Any],
) -> None:
    def script(request: ChatRequest, n: int) -> Exception | None:
        broken = request.asker.item.startswith("task:02") and request.role is Role.CRITIC
        return CallFailed(Reason.INVALID_OUTPUT, "not JSON") if broken and n == 0 else None

    model = WriterModel(script)
    report = await generate(model)
    assert report.complete
    assert [r.replicate for r in model.of("^task:02:.*critic")] == [0, 1]


async def test_a_critic_that_stays_unreadable_is_no_consent(generate: Callable[..., Any]) -> None:
    def script(request: ChatRequest, n: int) -> Exception | None:
        broken = request.asker.item.startswith("task:02") and request.role is Role.CRITIC
        return CallFailed(Reason.INVALID_OUTPUT, "not JSON") if broken else None

    report = await generate(WriterModel(script))
    (failure,) = report.failed
    assert failure.step.startswith("task:02")
    assert failure.step.endswith("critic")
    assert failure.reason is Reason.INVALID_OUTPUT
    assert not (report.out / "users").exists()


async def test_a_verdict_off_the_scale_is_refused(generate: Callable[..., Any]) -> None:
    def script(request: ChatRequest, n: int) -> dict[str, Any] | None:
        if request.role is not Role.CRITIC:
            return None
        return {"inferred_trait": "x", "verdict": "probably fine", "why": ""}

    report = await generate(WriterModel(script))
    assert report.failed[0].step.endswith("critic")


@pytest.mark.parametrize("at", [1, 6, 13, 22, 40])
async def test_a_killed_generation_goes_on_without_sending_a_call_twice(
    generate: Callable[..., Any], tmp_path: Path, at: int
) -> None:
    script = first_task_edits("fishing", "fishing", "neutral")
    whole = await generate(WriterModel(script), count=3, out=tmp_path / "whole")
    model = WriterModel(script, die_after=at)
    with pytest.raises(Killed):
        await generate(model, count=3)
    model.die_after = None
    model.asked.clear()
    report = await generate(model, count=3)
    assert set(model.sent.values()) == {1}
    assert report.digest == whole.digest
    for name in ("user_001", "user_002", "user_003"):
        path = Path("users") / f"{name}.json"
        assert (report.out / path).read_bytes() == (whole.out / path).read_bytes()
    sent = sum(model.sent.values())
    again = await generate(model, count=3)
    assert again.skipped == ("user_001", "user_002", "user_003")
    assert again.calls == 0
    assert sum(model.sent.values()) == sent


async def test_one_failed_user_does_not_stop_the_others(generate: Callable[..., Any]) -> None:
    def script(request: ChatRequest, n: int) -> Exception | None:
        hit = request.asker.user == "user_002" and request.asker.item.startswith("task:03")
        return CallFailed(Reason.PROVIDER_ERROR, "503") if hit and down else None

    down = True
    model = WriterModel(script)
    report = await generate(model, count=3)
    assert report.written == ("user_001", "user_003")
    (failure,) = report.failed
    assert (failure.user_id, failure.reason) == ("user_002", Reason.PROVIDER_ERROR)
    assert failure.resumable
    partial = report.out / "partial" / "user_002.partial.json"
    assert len(json.loads(partial.read_text())["tasks"]) == 2
    assert [u.user_id for u in load_dataset(report.out).users] == ["user_001", "user_003"]

    down = False
    report = await generate(model, count=3)
    assert report.written == ("user_002",)
    assert report.skipped == ("user_001", "user_003")
    assert report.other_settings == ()
    assert not partial.exists()


async def test_a_spent_money_budget_leaves_users_resumable(generate: Callable[..., Any]) -> None:
    def script(request: ChatRequest, n: int) -> Exception | None:
        return BudgetExceeded("$5.00 spent") if request.asker.item.startswith("bank:self") else None

    report = await generate(WriterModel(script), count=2)
    assert [f.resumable for f in report.failed] == [True, True]
    assert report.digest is None


async def test_a_user_does_not_depend_on_what_else_is_generated(
    generate: Callable[..., Any], tmp_path: Path
) -> None:
    together = await generate(WriterModel(), count=3, out=tmp_path / "a")
    alone = await generate(WriterModel(), count=1, start_index=3, out=tmp_path / "b")
    path = Path("users") / "user_003.json"
    assert (together.out / path).read_bytes() == (alone.out / path).read_bytes()


async def test_users_of_another_seed_are_kept_and_named(generate: Callable[..., Any]) -> None:
    await generate(WriterModel())
    report = await generate(WriterModel(), seed=8)
    assert report.skipped == report.other_settings == ("user_001",)


async def test_a_folder_with_another_pool_is_refused(
    generate: Callable[..., Any], full_pool: Pool
) -> None:
    await generate(WriterModel())
    model = WriterModel()
    with pytest.raises(DatasetError, match="differs from the pool"):
        await generate(model, pool=full_pool)
    assert not model.requests


@pytest.mark.parametrize("options", [{"count": 0}, {"start_index": 0}, {"edit_budget": -1}])
async def test_a_senseless_count_is_a_usage_error(
    generate: Callable[..., Any], options: dict[str, int]
) -> None:
    with pytest.raises(UsageError):
        await generate(WriterModel(), **options)


def test_personas_are_drawn_from_the_seed_over_the_whole_range() -> None:
    drawn = [draw(7, f"user_{i:03d}") for i in range(1, 401)]
    assert drawn == [draw(7, f"user_{i:03d}") for i in range(1, 401)]
    assert drawn != [draw(8, f"user_{i:03d}") for i in range(1, 401)]
    ages = [d.age for d in drawn]
    assert (min(ages), max(ages)) == AGES
    assert len({d.country for d in drawn}) > 60
    assert {d.pieces for d in drawn} == {1, 2, 3}
    youngest = dict(_occupations())
    for d in drawn:
        if d.age < 18:
            assert d.occupation.startswith("Pupil")
        elif not d.occupation.startswith("Retired"):
            assert youngest[d.occupation] <= d.age


async def test_through_the_gateway_over_http_with_outages(
    embedder: MiniLM, pool: Pool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with FakeServer(faults=0.1) as server:
        monkeypatch.setenv("OPENAI_API_KEY", "x")
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        reports = []
        for name in ("first", "second"):
            ledger = Ledger.open(f"sqlite:///{tmp_path / 'ledger.db'}")
            gateway = Gateway(RunConfig(name=name, model="openai/mock"), ledger, {})
            reports.append(
                await generate_users(
                    gateway, embedder, pool, count=2, seed=7, out=tmp_path / name, run=name
                )
            )
            await gateway.close()
            ledger.close()
        first, second = reports
        assert first.complete
        assert server.stats()["faults"]
        assert server.stats()["resent"] == 0
        assert second.calls == second.replayed == first.calls
        assert second.digest == first.digest
        assert load_user(first.out / "users" / "user_001.json").generation["model"] == "openai/mock"
