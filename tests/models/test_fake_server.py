"""The fake provider can play every prompt, with a schema and without, always the same way."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

import prompts
from adapters.models.gateway import Gateway
from memprobe.config import RunConfig
from memprobe.types import Asker, Role
from storage.ledger import Ledger
from tests.support.fake_server import FakeServer
from tests.support.gateways import ledger_at

SHORT, LONG = "writes shell scripts", "writes shell scripts daily and debugs them with care"
TURNS = [{"turn": 1, "assistant": "Try a script.", "user": f"For me it is like this: {SHORT}"}]
TARGET = {"category": "skill_memory", "dimension": "shell_scripts", "short": SHORT}
TARGET |= {"explanation": LONG, "task": "Help me automate shell scripts"}
CASES: dict[str, tuple[Role, dict[str, Any]]] = {
    "simulator": (
        Role.SIMULATOR,
        {
            "profile": {"name": "Ana"},
            "bank": [TARGET],
            "task": TARGET["task"],
            "history": [],
            "own_recent": [],
            "turn": 1,
            "reply": "Try this.",
        },
    ),
    "slot_fill": (
        Role.SLOT_FILL,
        {
            "memories": [f"user: {SHORT}", "likes tea"],
            "category": "skill_memory",
            "boundary": "skills",
            "dimension": "shell_scripts",
        },
    ),
    "judge": (Role.JUDGE, {**TARGET, "label": SHORT}),
    "oracle": (Role.ORACLE, TARGET),
    "disclosure": (Role.DISCLOSURE, {**TARGET, "transcript": TURNS}),
    "subclass": (Role.SUBCLASS, {**TARGET, "transcript": TURNS}),
    "preference": (
        Role.PREFERENCE,
        {"preferences": [TARGET, TARGET], "task": "t", "reply": "Try this."},
    ),
    "assistant": (Role.ASSISTANT, {"memories": ["likes tea"], "task": "Plan it", "history": []}),
}


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    opened = ledger_at(tmp_path)
    yield opened
    opened.close()


@pytest.mark.parametrize("rejects", [(), ("response_format",)])
async def test_it_answers_every_prompt_in_its_declared_form(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch, rejects: tuple[str, ...]
) -> None:
    with FakeServer(rejects=rejects) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        monkeypatch.setenv("OPENAI_API_KEY", "x")
        chat = Gateway(RunConfig(name="r", model="openai/mock"), ledger, {})
        got: dict[str, Any] = {}
        for name, (role, variables) in CASES.items():
            prompt = prompts.load(name)
            asker = Asker(run="r", suite="recovery", stage="s", item=name)
            reply = await chat.ask(prompt.request(role, asker, variables))
            assert prompt.answer is None or isinstance(reply.value, prompt.answer)
            assert not reply.repaired
            got[name] = reply.value or reply.text
        assert got["judge"].score > 0
        assert got["disclosure"].disclosed
        assert SHORT in got["disclosure"].evidence
        assert len(got["preference"].per_pref) == 2
        assert "Plan it" in got["assistant"]
        await chat.close()


async def test_it_counts_what_it_answered_and_what_it_did_not() -> None:
    body = {"model": "mock", "messages": [{"role": "user", "content": "hello"}]}
    with FakeServer() as server:
        server.script("server_error", None, None)
        async with httpx.AsyncClient() as client:
            url = f"{server.url}/chat/completions"
            first, second, third = [await client.post(url, json=body) for _ in range(3)]
            seen = (await client.get(server.url.replace("/v1", "/_stats"))).json()
        assert (first.status_code, second.status_code) == (500, 200)
        assert second.json() == third.json()
        assert (seen["chats"], seen["distinct"], seen["answered"], seen["resent"]) == (3, 1, 2, 1)
        assert json.loads(json.dumps(server.chats[0].body)) == body
