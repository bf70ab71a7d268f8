"""The HTTP door: an OpenAI-compatible endpoint on loopback for libraries that call a model.

Their calls go through the gateway like ours: priced, limited, recorded,
replayed. A caller is known by the bearer token that was minted for it; any
other token is turned away. The model is the run's `memory` model whatever name
the library sends; embeddings come from the run's embedder.
"""

from __future__ import annotations

import asyncio
import base64
import json
import secrets
import socket
import struct
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from adapters.models import questions
from adapters.models.redaction import redact
from memprobe.errors import (
    AdapterError,
    BudgetExceeded,
    CallFailed,
    MemProbeError,
    MissingPrerequisite,
)
from memprobe.outcomes import Reason
from memprobe.ports import Embedder
from memprobe.systems import ModelAccess
from memprobe.text import sanitize
from memprobe.types import Asker, Role
from storage.ledger import LedgerEntry

if TYPE_CHECKING:
    from adapters.models.gateway import Gateway

PROMPT = "library"
KEEP_ALIVE_S = 24 * 3600
BACKLOG = 2048
_METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")
_STATUS = {
    Reason.TIMEOUT: 504,
    Reason.PROVIDER_ERROR: 502,
    Reason.REFUSAL: 400,
}


@dataclass
class _Caller:
    """A token's owner, and which of its calls failed for good."""

    asker: Asker
    replicate: int = 0
    failures: dict[str, MemProbeError] = field(default_factory=dict)

    def misused(self, status: int, said: str, code: str, param: str | None = None) -> Response:
        """A request that the door cannot serve: a fault of the system's, and heard of."""
        self.failures[said] = AdapterError(f"{self.asker.system}: the model door refused: {said}")
        return _error(status, said, code, param)


class _Server(uvicorn.Server):
    """uvicorn without signal handlers: interrupting is the run's business."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class Door:
    """See the module. Runs in the caller's event loop between `start` and `stop`."""

    def __init__(self, gateway: Gateway, embedder: Embedder) -> None:
        self._gateway = gateway
        self._embedder = embedder
        self._callers: dict[str, _Caller] = {}
        self._server: _Server | None = None
        self._serving: asyncio.Task[None] | None = None
        self._port = 0

    @property
    def url(self) -> str:
        """Base URL for an OpenAI client; raises when the door is not open."""
        if self._server is None:
            raise MissingPrerequisite("the model door is not open; start it first")
        return f"http://127.0.0.1:{self._port}/v1"

    def token(self, asker: Asker, replicate: int = 0) -> str:
        """A new bearer token whose calls are recorded as this asker's.

        `replicate` keeps repeated samples of the same question apart.
        """
        token = f"memprobe-{secrets.token_urlsafe(24)}"
        self._callers[token] = _Caller(asker, replicate)
        return token

    def line(self, asker: Asker, replicate: int = 0) -> Line:
        """A token with the harness's end of it; see `ModelLine`."""
        return Line(self, self.token(asker, replicate), asker)

    def access(self, token: str) -> ModelAccess:
        """What a store is handed with its token."""
        model = self._gateway.model_for(Role.MEMORY)
        return ModelAccess(self.url, token, model, self._embedder.name)

    def begin(self, token: str, item: str) -> None:
        """Calls of this token belong to this item from now on.

        Raises `AdapterError` when the token was revoked: what its store asked now
        would fail, and nobody would hear of it.
        """
        caller = self._callers.get(token)
        if caller is None:
            raise AdapterError("the store was closed, and with it its access to the model")
        caller.asker = caller.asker.model_copy(update={"item": item})

    def revoke(self, token: str) -> None:
        """Turn a token away from now on."""
        self._callers.pop(token, None)

    def failure(self, token: str) -> MemProbeError | None:
        """The last failed call of a token that no later one made good, once.

        Libraries tend to swallow their failures; what they asked again with
        success is none.
        """
        caller = self._callers.get(token)
        if caller is None or not caller.failures:
            return None
        *_, last = caller.failures.values()
        caller.failures.clear()
        return last

    async def start(self) -> str:
        """Serve on a free loopback port; gives the base URL."""
        if self._server is not None:
            return self.url
        # asyncio turns Nagle off for sockets that say they are TCP: 40 ms a call otherwise.
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        listener.bind(("127.0.0.1", 0))
        self._port = listener.getsockname()[1]
        app = Starlette(
            routes=[
                Route("/v1/chat/completions", self._chat, methods=["POST"]),
                Route("/v1/embeddings", self._embeddings, methods=["POST"]),
                Route("/v1/models", self._models),
                Route("/{path:path}", self._elsewhere, methods=list(_METHODS)),
            ]
        )
        # Clients keep their connections: one closed in the moment of a request would be an error
        # of ours that looks like the model's.
        config = uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            lifespan="off",
            ws="none",
            timeout_keep_alive=KEEP_ALIVE_S,
            backlog=BACKLOG,
        )
        self._server = _Server(config)
        self._serving = asyncio.create_task(self._server.serve(sockets=[listener]))
        while not self._server.started:
            if self._serving.done():
                self._serving.result()
                raise MissingPrerequisite("the model door could not be opened on loopback")
            await asyncio.sleep(0.005)
        return self.url

    async def stop(self) -> None:
        """Close the door; safe to call twice."""
        server, serving = self._server, self._serving
        self._server = self._serving = None
        if server is None or serving is None:
            return
        server.should_exit = True
        # A library's keep-alive connection must not hold up the end of a run.
        server.force_exit = True
        await serving

    async def __aenter__(self) -> Door:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    def _caller(self, request: Request) -> _Caller | None:
        kind, _, token = request.headers.get("authorization", "").partition(" ")
        return self._callers.get(token.strip()) if kind.lower() == "bearer" else None

    async def _elsewhere(self, request: Request) -> Response:
        caller = self._caller(request)
        if caller is None:
            return _unauthorized()
        said = f"there is no {request.url.path} here: chat completions, embeddings and models only"
        return caller.misused(404, said, "not_found")

    async def _models(self, request: Request) -> Response:
        if self._caller(request) is None:
            return _unauthorized()
        name = self._gateway.model_for(Role.MEMORY)
        rows = [{"id": n, "object": "model", "created": 0, "owned_by": "memprobe"} for n in (name,)]
        return JSONResponse({"object": "list", "data": rows})

    async def _chat(self, request: Request) -> Response:
        caller = self._caller(request)
        if caller is None:
            return _unauthorized()
        try:
            body = json.loads(await request.body())
            if body.get("n") not in (None, 1):
                return caller.misused(400, "n must be 1", "unsupported_value", "n")
            model = self._gateway.model_for(Role.MEMORY)
            salt = self._gateway.salt_for(model, caller.asker)
            question = questions.from_body(body, model, salt, caller.replicate)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            return caller.misused(400, f"not a chat request: {error!r}", "invalid_request")
        try:
            entry = await self._gateway.complete_raw(question, caller.asker, PROMPT)
        except MemProbeError as failure:
            caller.failures[question.key] = failure
            return _failed(failure)
        except Exception as error:
            # A library takes any status for an outage that it may pass over.
            said = f"the gateway failed: {error!r}"
            return caller.misused(500, said, Reason.ADAPTER_ERROR.value)
        caller.failures.pop(question.key, None)
        reply = chat_completion(entry, str(body.get("model") or model))
        if body.get("stream"):
            asked = body.get("stream_options")
            usage = isinstance(asked, dict) and bool(asked.get("include_usage"))
            return StreamingResponse(_chunks(reply, usage), media_type="text/event-stream")
        return JSONResponse(reply)

    async def _embeddings(self, request: Request) -> Response:
        caller = self._caller(request)
        if caller is None:
            return _unauthorized()
        try:
            body = json.loads(await request.body())
            given = body["input"]
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            return caller.misused(400, f"not an embeddings request: {error!r}", "invalid_request")
        texts = [given] if isinstance(given, str) else given
        if not isinstance(texts, list) or not all(isinstance(t, str) for t in texts):
            said = "input must be text, not tokens"
            return caller.misused(400, said, "unsupported_value", "input")
        wanted = body.get("dimensions")
        if wanted not in (None, self._embedder.dimensions):
            said = f"the embedder has {self._embedder.dimensions} dimensions"
            return caller.misused(400, said, "unsupported_value", "dimensions")
        try:
            vectors = await self._embedder.encode([sanitize(t)[0] for t in texts])
        except Exception as error:
            # Unanswered, it would take the connection along, and with it the next call.
            said = f"the embedder failed: {error!r}"
            return caller.misused(500, said, Reason.ADAPTER_ERROR.value)
        # The openai client asks for base64 unless told otherwise.
        packed = body.get("encoding_format") == "base64"
        rows = [
            {"object": "embedding", "index": i, "embedding": _packed(v) if packed else v}
            for i, v in enumerate(vectors)
        ]
        used = sum(len(t) // 4 for t in texts)
        usage = {"prompt_tokens": used, "total_tokens": used}
        name = body.get("model") or self._embedder.name
        return JSONResponse({"object": "list", "data": rows, "model": name, "usage": usage})


class Line:
    """One store's model access and what the harness sees of it (`memprobe.systems.ModelLine`)."""

    def __init__(self, door: Door, token: str, asker: Asker) -> None:
        self._door, self._token = door, token
        self.asker = asker

    @property
    def access(self) -> ModelAccess:
        """What the store is handed."""
        return self._door.access(self._token)

    def begin(self, item: str) -> None:
        """Calls from now on belong to this item."""
        self._door.begin(self._token, item)

    def failure(self) -> MemProbeError | None:
        """A failed call that was not made good since this was last asked."""
        return self._door.failure(self._token)

    def close(self) -> None:
        """Turn the store's key away."""
        self._door.revoke(self._token)


def _packed(vector: list[float]) -> str:
    return base64.b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode("ascii")


def chat_completion(entry: LedgerEntry, model: str) -> dict[str, Any]:
    """A stored completion in OpenAI's form; `model` is the name the library asked for."""
    message: dict[str, Any] = {"role": "assistant", "content": entry.text}
    if "tool_calls" in entry.flags and entry.text is not None:
        message = {"role": "assistant", **json.loads(entry.text)}
    message["refusal"] = entry.refusal
    usage = entry.usage
    prompt, completion = usage.prompt_tokens or 0, usage.completion_tokens or 0
    return {
        "id": f"chatcmpl-{entry.key[:24]}",
        "object": "chat.completion",
        "created": 0,
        "model": model,
        "choices": [
            {
                "index": 0,
                "message": message,
                "finish_reason": entry.finish_reason,
                "logprobs": None,
            }
        ],
        "usage": {
            "prompt_tokens": prompt,
            "completion_tokens": completion,
            "total_tokens": prompt + completion,
            "prompt_tokens_details": {"cached_tokens": usage.cached_tokens or 0},
            "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens or 0},
        },
    }


async def _chunks(reply: dict[str, Any], usage: bool) -> AsyncIterator[str]:
    choice = reply["choices"][0]
    head = {**{k: v for k, v in reply.items() if k != "usage"}, "object": "chat.completion.chunk"}
    delta = dict(choice["message"])
    if delta.get("tool_calls"):
        delta["tool_calls"] = [{**c, "index": i} for i, c in enumerate(delta["tool_calls"])]
    for part, finish in ((delta, None), ({}, choice["finish_reason"])):
        chunk = {**head, "choices": [{"index": 0, "delta": part, "finish_reason": finish}]}
        yield f"data: {json.dumps(chunk)}\n\n"
    if usage:
        yield f"data: {json.dumps({**head, 'choices': [], 'usage': reply['usage']})}\n\n"
    yield "data: [DONE]\n\n"


def _unauthorized() -> Response:
    return _error(401, "unknown token; the run hands one out for each store", "invalid_api_key")


def _failed(failure: MemProbeError) -> Response:
    if isinstance(failure, BudgetExceeded):
        return _error(402, failure.detail, "budget_exceeded")
    if isinstance(failure, CallFailed):
        return _error(_STATUS.get(failure.reason, 400), failure.detail, failure.reason.value)
    return _error(400, str(failure), "usage_error")


def _error(status: int, message: str, code: str, param: str | None = None) -> Response:
    kind = "server_error" if status >= 500 else "invalid_request_error"
    body = {"error": {"message": redact(message), "type": kind, "code": code, "param": param}}
    # The gateway has retried already; OpenAI's clients would do it all over again.
    return JSONResponse(body, status_code=status, headers={"x-should-retry": "false"})
