"""An OpenAI-compatible server that answers by content, fails on demand and remembers everything.

In process: `with FakeServer() as server: ...server.url...`. As a program:
`python -m tests.support.fake_server --port 0 --latency 0.25 --faults 0.1` prints one JSON
line with its URL; `GET /_stats` tells what it has seen.

A fault is a mode's name or a dict with `mode` and its details. Faults come from
a script (one a chat request, in order; None = answer) or from a seeded share of
requests; a repeated request draws again, so that retries get through.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import hashlib
import json
import random
import re
import threading
import time
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import uvicorn

from tests.support import fake_answers

Fault = str | dict[str, Any] | None
FLAKY: tuple[str, ...] = ("rate_limit", "server_error", "reset")
"""Faults that a retry overcomes."""


@dataclass
class Seen:
    """One request as it arrived; `sent` once the whole response is out."""

    path: str
    body: dict[str, Any]
    digest: str
    headers: dict[str, str]
    fault: str = ""
    sent: bool = False
    at: float = field(default_factory=time.monotonic)


class _Reset(Exception):
    """Drops the connection in the middle of a response."""


class FakeServer:
    """See the module. `rejects` names parameters that are refused whenever they are sent."""

    def __init__(
        self,
        *,
        latency: float = 0.0,
        faults: float = 0.0,
        kinds: Sequence[str] = FLAKY,
        seed: int = 7,
        rejects: Sequence[str] = (),
        retry_after: str = "0",
        port: int = 0,
    ) -> None:
        self.latency, self.faults, self.kinds, self.seed = latency, faults, tuple(kinds), seed
        self.rejects = tuple(rejects)
        self.retry_after = retry_after
        self.seen: list[Seen] = []
        self.active = 0
        self.peak = 0
        self._times: Counter[str] = Counter()
        self._script: deque[Fault] = deque()
        self._port = port
        self._server: uvicorn.Server | None = None
        self._thread: threading.Thread | None = None

    # life

    def __enter__(self) -> FakeServer:
        config = uvicorn.Config(
            self, host="127.0.0.1", port=self._port, log_level="critical", lifespan="off"
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, daemon=True)
        self._thread.start()
        while not self._server.started:
            if not self._thread.is_alive():
                raise RuntimeError("the fake server did not start")
            time.sleep(0.005)
        self._port = self._server.servers[0].sockets[0].getsockname()[1]
        return self

    def __exit__(self, *_: object) -> None:
        assert self._server is not None
        assert self._thread is not None
        self._server.should_exit = True
        self._server.force_exit = True
        self._thread.join(timeout=10)

    @property
    def url(self) -> str:
        """Base URL for an OpenAI client."""
        return f"http://127.0.0.1:{self._port}/v1"

    # what was seen

    def script(self, *faults: Fault) -> None:
        """What the next chat requests meet, one each."""
        self._script.extend(faults)

    @property
    def chats(self) -> list[Seen]:
        """The chat requests, in order of arrival."""
        return [s for s in self.seen if s.path.endswith("/chat/completions")]

    def counts(self) -> Counter[str]:
        """Chat requests by body hash."""
        return Counter(s.digest for s in self.chats)

    def stats(self) -> dict[str, Any]:
        """Counts for a test elsewhere; `resent`: bodies that were answered whole before."""
        answered = Counter(s.digest for s in self.chats if s.sent and not s.fault)
        return {
            "chats": len(self.chats),
            "distinct": len(self.counts()),
            "answered": sum(answered.values()),
            "resent": sum(n - 1 for n in answered.values()),
            "faults": dict(Counter(s.fault for s in self.chats if s.fault)),
            "peak": self.peak,
        }

    # protocol

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        raw = b""
        while True:
            event = await receive()
            raw += event.get("body", b"")
            if not event.get("more_body"):
                break
        path = scope["path"]
        if path == "/_stats":
            await _reply(send, 200, self.stats())
            return
        if path.endswith("/models"):
            data = [{"id": "mock", "object": "model", "created": 0, "owned_by": "fake"}]
            await _reply(send, 200, {"object": "list", "data": data})
            return
        try:
            body = json.loads(raw)
        except ValueError:
            await _reply(send, 400, _error("the body is not JSON", "invalid_request_error"))
            return
        headers = {k.decode("latin-1"): v.decode("latin-1") for k, v in scope["headers"]}
        seen = Seen(path, body, hashlib.sha256(raw).hexdigest(), headers)
        self.seen.append(seen)
        self.active += 1
        self.peak = max(self.peak, self.active)
        try:
            if self.latency:
                await asyncio.sleep(self.latency)
            if path.endswith("/embeddings"):
                await _reply(send, 200, _embeddings(body))
            elif path.endswith("/chat/completions"):
                await self._chat(seen, receive, send)
            else:
                await _reply(send, 404, _error(f"no {path}", "not_found_error"))
            seen.sent = seen.fault not in ("hang", "reset")
        finally:
            self.active -= 1

    def _next_fault(self, seen: Seen) -> dict[str, Any]:
        fault: Fault = None
        if self._script:
            fault = self._script.popleft()
        elif self.faults:
            self._times[seen.digest] += 1
            draw = random.Random(f"{self.seed}/{seen.digest}/{self._times[seen.digest]}")
            if draw.random() < self.faults:
                fault = draw.choice(self.kinds)
        if fault is None:
            return {"mode": ""}
        return {"mode": fault} if isinstance(fault, str) else fault

    async def _chat(self, seen: Seen, receive: Any, send: Any) -> None:
        body = seen.body
        for name in self.rejects:
            if name in body:
                seen.fault = f"reject_{name}"
                await _reply(send, 400, _rejected(name))
                return
        fault = self._next_fault(seen)
        mode = seen.fault = fault["mode"]
        match mode:
            case "rate_limit":
                after = fault.get("retry_after", self.retry_after)
                if after == "date":
                    moment = datetime.now(UTC) + timedelta(seconds=fault.get("seconds", 1))
                    after = format_datetime(moment, usegmt=True)
                error = _error("Rate limit reached", "rate_limit_error", "rate_limit_exceeded")
                await _reply(send, 429, error, [(b"retry-after", str(after).encode())])
            case "server_error":
                status = fault.get("status", 500)
                await _reply(send, status, _error("The server had an error", "server_error"))
            case "hang":
                while (await receive())["type"] != "http.disconnect":
                    pass
            case "reset":
                await _start(send, 200, 1000)
                await send({"type": "http.response.body", "body": b'{"id"', "more_body": True})
                raise _Reset
            case "reject_param":
                await _reply(send, 400, _rejected(fault["param"]))
            case "too_large":
                said = "max_tokens is too large: this model supports at most 4096 tokens"
                error = _error(said, "invalid_request_error", "invalid_value", "max_tokens")
                await _reply(send, 400, error)
            case "auth":
                said = f"Incorrect API key provided: {seen.headers.get('authorization', '')[7:]}"
                error = _error(said, "invalid_request_error", "invalid_api_key")
                await _reply(send, 401, error)
            case "context_window":
                said = "This model's maximum context length is 8192 tokens."
                error = _error(said, "invalid_request_error", "context_length_exceeded", "messages")
                await _reply(send, 400, error)
            case "content_policy":
                said = "Your request was rejected as a result of our content policy."
                error = _error(said, "invalid_request_error", "content_policy_violation")
                await _reply(send, 400, error)
            case _:
                reply = _chat_completion(body, fault)
                if body.get("stream"):
                    await _stream(send, reply)
                else:
                    await _reply(send, 200, reply)


def _chat_completion(body: dict[str, Any], fault: dict[str, Any]) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "refusal": None}
    finish = "stop"
    calls = fault.get("tool_calls") or (not fault.get("content") and fake_answers.tool_calls(body))
    if calls and fault["mode"] in ("", "said", "truncated"):
        message["tool_calls"], finish = calls, "tool_calls"
    text: str | None = fault.get("content") or fake_answers.answer(body)
    assert text is not None
    details: dict[str, Any] = {"reasoning_tokens": 0}
    completion = max(1, len(json.dumps(calls) if calls else text) // 4)
    match fault["mode"]:
        case "truncated":
            text, finish = text[: max(1, len(text) // 2)], "length"
            if calls:
                last = calls[-1]["function"]["arguments"]
                calls[-1]["function"]["arguments"] = last[: max(1, len(last) // 2)]
        case "reasoning_only":
            text, finish = None, "length"
            completion = body.get("max_tokens") or body.get("max_completion_tokens") or 2000
            details["reasoning_tokens"] = completion
        case "refusal":
            text, message["refusal"] = None, "I can't help with that."
        case "empty":
            text = ""
        case "fenced":
            text = f"```JSON\n{text}\n```"
        case "prose":
            text = f"Here you go:\n```json\n{text}\n```\nLet me know if that helps."
        case "nan":
            text = _number_as(text, "NaN")
        case "wrong_type":
            text = json.dumps([json.loads(text)])
        case "python":
            text = repr(json.loads(text))
        case "surrogate":
            spot = max(text.rfind('"'), 0)
            text = f"{text[:spot]} \ud83d{text[spot:]}"
        case "content_filter":
            finish = "content_filter"
    message["content"] = None if message.get("tool_calls") else text
    prompt = sum(len(fake_answers.content_text(m.get("content"))) for m in body["messages"]) // 4
    usage = {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": fault.get("cached_tokens", 0)},
        "completion_tokens_details": details,
    }
    return {
        "id": f"chatcmpl-{fake_answers.number(json.dumps(body, sort_keys=True)):x}",
        "object": "chat.completion",
        "created": 1700000000,
        "model": body.get("model", "mock"),
        "choices": [{"index": 0, "message": message, "finish_reason": finish, "logprobs": None}],
        "usage": fault.get("usage") or usage,
    }


def _number_as(text: str, word: str) -> str:
    """The first number of an answer replaced by a word that is no JSON."""
    return re.sub(r"-?\d+(\.\d+)?", word, text, count=1)


def _embeddings(body: dict[str, Any]) -> dict[str, Any]:
    given = body["input"]
    inputs = given if isinstance(given, list) else [given]
    rows = [
        {"object": "embedding", "index": i, "embedding": fake_answers.vector(str(text))}
        for i, text in enumerate(inputs)
    ]
    used = sum(len(str(t)) // 4 for t in inputs)
    usage = {"prompt_tokens": used, "total_tokens": used}
    return {"object": "list", "data": rows, "model": body.get("model"), "usage": usage}


def _error(message: str, kind: str, code: str | None = None, param: str | None = None) -> Any:
    return {"error": {"message": message, "type": kind, "code": code, "param": param}}


def _rejected(name: str) -> Any:
    said = f"Unsupported value: '{name}' is not supported with this model."
    return _error(said, "invalid_request_error", "unsupported_value", name)


async def _start(send: Any, status: int, length: int, extra: Sequence[Any] = ()) -> None:
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(length).encode()),
        *extra,
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})


async def _reply(send: Any, status: int, body: Any, extra: Sequence[Any] = ()) -> None:
    data = json.dumps(body).encode()
    await _start(send, status, len(data), extra)
    await send({"type": "http.response.body", "body": data})


async def _stream(send: Any, reply: dict[str, Any]) -> None:
    headers = [(b"content-type", b"text/event-stream")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    choice = reply["choices"][0]
    chunk = {**reply, "object": "chat.completion.chunk"}
    said = dict(choice["message"])
    if said.get("tool_calls"):
        said["tool_calls"] = [{**c, "index": i} for i, c in enumerate(said["tool_calls"])]
    for delta, finish in ((said, None), ({}, choice["finish_reason"])):
        chunk["choices"] = [{"index": 0, "delta": delta, "finish_reason": finish}]
        data = f"data: {json.dumps(chunk)}\n\n".encode()
        await send({"type": "http.response.body", "body": data, "more_body": True})
    await send({"type": "http.response.body", "body": b"data: [DONE]\n\n"})


def main() -> None:
    """Serve until interrupted."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--latency", type=float, default=0.0)
    parser.add_argument("--faults", type=float, default=0.0)
    parser.add_argument("--kinds", default=",".join(FLAKY))
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--rejects", default="")
    parser.add_argument("--retry-after", default="0")
    given = parser.parse_args()
    server = FakeServer(
        latency=given.latency,
        faults=given.faults,
        kinds=given.kinds.split(","),
        seed=given.seed,
        rejects=[r for r in given.rejects.split(",") if r],
        retry_after=given.retry_after,
        port=given.port,
    )
    with server:
        print(json.dumps({"url": server.url}), flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            threading.Event().wait()


if __name__ == "__main__":
    main()
