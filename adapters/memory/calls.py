"""How our own memory systems ask their model: through the door, like any library."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from adapters.models.loading import loaded
from memprobe.errors import (
    AdapterError,
    BudgetExceeded,
    CallFailed,
    MemProbeError,
    MissingPrerequisite,
)
from memprobe.outcomes import Reason
from memprobe.systems import ModelAccess

if TYPE_CHECKING:
    import openai

KEY_PREFIX = "chatcmpl-"
"""Before the ledger key in a completion's id."""


@dataclass(frozen=True, slots=True)
class Completion:
    """An answer as it stands. `finish_reason` is OpenAI's; `call_id` leads to the ledger."""

    text: str
    finish_reason: str
    call_id: str


class DoorClient:
    """A chat client for one store. Nothing is retried: the gateway has done that already."""

    def __init__(self, models: ModelAccess | None) -> None:
        if models is None:
            raise MissingPrerequisite("this system needs a language model: pass --model")
        self._models = models
        self._client: openai.AsyncOpenAI | None = None

    async def _connected(self) -> openai.AsyncOpenAI:
        if self._client is None:
            await loaded("openai")
            import openai

            # A proxy of the environment must not come between us and loopback.
            http = openai.DefaultAsyncHttpxClient(trust_env=False, timeout=None)
            self._client = openai.AsyncOpenAI(
                base_url=self._models.base_url,
                api_key=self._models.api_key,
                max_retries=0,
                timeout=None,
                http_client=http,
            )
        return self._client

    async def complete(self, messages: Sequence[Mapping[str, str]], **params: Any) -> Completion:
        """One completion; `params` are the request's other fields.

        Raises `CallFailed` with the gateway's reason, `BudgetExceeded` at the cost limit.
        """
        client = await self._connected()
        import openai

        given: list[Any] = [dict(m) for m in messages]
        try:
            reply = await client.chat.completions.create(
                model=self._models.chat_model, messages=given, extra_body=params
            )
        except openai.APIStatusError as error:
            raise failure_of(error) from error
        except openai.APIError as error:
            raise CallFailed(Reason.PROVIDER_ERROR, f"the model door: {error}") from error
        choice = reply.choices[0]
        call_id = reply.id.removeprefix(KEY_PREFIX)
        if choice.message.refusal:
            raise CallFailed(Reason.REFUSAL, choice.message.refusal[:400], call_id)
        return Completion(choice.message.content or "", choice.finish_reason, call_id)

    async def chat(self, messages: Sequence[Mapping[str, str]], **params: Any) -> str:
        """The text of `complete`."""
        return (await self.complete(messages, **params)).text

    async def close(self) -> None:
        """Close the connection; safe to call twice."""
        client, self._client = self._client, None
        if client is not None:
            await client.close()


class HeldLine:
    """A model line whose other end is in another process (`memprobe.systems.ModelLine`)."""

    def __init__(self, access: ModelAccess) -> None:
        self.access = access

    def begin(self, item: str) -> None:
        """The other end has said so."""

    def failure(self) -> MemProbeError | None:
        """The other end hears of it."""
        return None

    def close(self) -> None:
        """The other end does."""


def failure_of(error: openai.APIStatusError) -> CallFailed:
    """What the door meant by an error status: the gateway's reason, or the cost limit."""
    body = error.body if isinstance(error.body, dict) else {}
    detail = str(body.get("message") or error.message)
    code = body.get("code")
    if code == "budget_exceeded":
        return BudgetExceeded(detail)
    reason = Reason(code) if code in {r.value for r in Reason} else Reason.PROVIDER_ERROR
    return CallFailed(reason, detail)


def cause_of(error: BaseException, system: str, doing: str) -> MemProbeError:
    """What a run should hear of an error that came out of a system's library.

    The door's meaning where it goes back to a failed call, MemProbe's own error where
    one was wrapped, else an `AdapterError` that names the system and what it did.
    """
    import openai

    link: BaseException | None = error
    while link is not None:
        if isinstance(link, MemProbeError):
            return link
        if isinstance(link, openai.APIStatusError):
            return failure_of(link)
        if isinstance(link, openai.APIError):
            return CallFailed(Reason.PROVIDER_ERROR, f"the model door: {link}")
        link = link.__cause__ or link.__context__
    return AdapterError(f"{system}: {doing} failed: {type(error).__name__}: {error}")
