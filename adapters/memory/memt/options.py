"""Mem-T's options: `--system-option memt.FIELD=VALUE`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field, JsonValue, model_validator

from adapters.memory.memt import promptset
from memprobe.systems import SystemOptions

TRAINING_MAX_TOKENS, TRAINING_MIN_P = 1024, 0.05


class Options(SystemOptions):
    """How the policy is asked and what is kept.

    `profile`: `training` samples as in the policy's training (no thinking, at
    most 1,024 tokens, min_p 0.05); `release` sends none of these, as the
    published adapter did. `temperature` is sent under both; the published
    adapter set 0.0 in a place that nothing reads, and so ran at 0.7.

    `max_steps`, `retrieval_topk`, `update_topk`: rounds of a search, items of a
    search tool, neighbours shown for an update.

    `dump_content`: `full` dumps each item with its source messages, as
    published; `memory_only` without them.

    `store_assistant` keeps the assistant's messages as well; the published
    adapter keeps the user's alone.

    `empty_search`: what a search gives that found nothing. The published reply
    path falls back to the head of the dump (20 items, 400 characters each) and
    the published probe does not; one port serves both here, so `nothing` is the
    default under either protocol.

    `answer_call`: ask for a final answer when a search ended without one, though
    nobody reads it, as the published reply path does.

    `prompts` is the folder of a prompt set of one's own, "" for ours.
    `prompt_set` identifies the texts in use; it is worked out, never given.
    """

    profile: Literal["training", "release"] = "training"
    temperature: float = Field(default=0.7, ge=0.0, le=2.0)
    max_steps: int = Field(default=6, ge=1, le=50)
    retrieval_topk: int = Field(default=5, ge=1, le=50)
    update_topk: int = Field(default=3, ge=1, le=50)
    dump_content: Literal["full", "memory_only"] = "full"
    store_assistant: bool = False
    empty_search: Literal["nothing", "dump_head"] = "nothing"
    answer_call: bool = False
    prompts: str = ""
    prompt_set: str = ""

    @model_validator(mode="before")
    @classmethod
    def _identify(cls, given: Any) -> Any:
        """Name the texts in use, so that results made with other texts are not taken for these."""
        if not isinstance(given, dict):
            return given
        folder = given.get("prompts", "")
        if not isinstance(folder, str):
            return given
        return {**given, "prompt_set": promptset.load(folder).identity}

    @classmethod
    def published(cls) -> Mapping[str, JsonValue]:
        """The released adapter: nothing but the temperature is sent, and the answer is paid for."""
        return {"profile": "release", "answer_call": True}

    def sampling(self) -> dict[str, Any]:
        """The request fields of every call."""
        fields: dict[str, Any] = {
            "temperature": self.temperature,
            "response_format": {"type": "text"},
        }
        if self.profile == "training":
            fields |= {
                "max_tokens": TRAINING_MAX_TOKENS,
                "min_p": TRAINING_MIN_P,
                "chat_template_kwargs": {"enable_thinking": False},
            }
        return fields
