"""What a run with remote models needs, looked at before anything is started. Makes no call."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any

from memprobe.config import RunConfig
from memprobe.errors import AdapterError, MemProbeError, MissingPrerequisite, UsageError
from memprobe.types import Role

MEASURING = (
    Role.ASSISTANT,
    Role.SIMULATOR,
    Role.PREFERENCE,
    Role.SLOT_FILL,
    Role.JUDGE,
    Role.ORACLE,
    Role.DISCLOSURE,
    Role.SUBCLASS,
)
"""Roles that every recovery run asks; `memory` comes to them with a system that has a model."""
PROBING = (Role.READER,)
"""Roles that every paradigms run asks; its scorers are rules."""
GENERATING = (Role.GENERATOR, Role.CRITIC, Role.EDITOR)

_OPEN = frozenset({"ollama", "ollama_chat", "hosted_vllm"})
# Without an address litellm would send what was meant for a server of one's own to OpenAI.
_ADDRESSED = {
    "hosted_vllm": ("HOSTED_VLLM_API_BASE",),
    "openai_like": ("OPENAI_LIKE_API_BASE",),
    "lm_studio": ("LM_STUDIO_API_BASE",),
}
# Their credentials also come from files, an instance's role or a login.
_ELSEWHERE = frozenset(
    {"bedrock", "bedrock_converse", "sagemaker", "sagemaker_chat", "vertex_ai", "vertex_ai_beta"}
)
# Asking litellm for these starts a login over the network.
_LOGIN = frozenset({"github_copilot", "chatgpt"})
_ALSO = {
    "azure": ("AZURE_AD_TOKEN", "AZURE_CLIENT_ID"),
    "cohere": ("CO_API_KEY",),
    "huggingface": ("HF_TOKEN",),
    "openrouter": ("OR_API_KEY",),
}
_EITHER = frozenset({"gemini"})
_BASES = ("OPENAI_BASE_URL", "OPENAI_API_BASE")


def check_models(config: RunConfig, roles: Iterable[Role]) -> None:
    """Refuse models that cannot be asked, all of them in one message.

    Raises `MissingPrerequisite` when only keys are missing; `UsageError` when a
    provider is unknown, or a price while `max_cost` is set. Embedded models pass,
    and litellm is imported only when there is another.
    """
    models: dict[str, list[str]] = {}
    for role in roles:
        models.setdefault(config.model_of(role), []).append(role.value)
    keys: list[str] = []
    others: list[str] = []
    for model, names in models.items():
        if model.startswith("embedded/"):
            continue
        whose = f"model {model!r} ({_roles(config, model, names)})"
        unknown = _unknown(model)
        if unknown:
            others.append(f"{whose}: {unknown}")
            continue
        missing = missing_keys(model)
        if missing:
            keys.append(f"{whose}: {_advice(model, missing)}")
        if config.max_cost is not None and not _priced(model):
            others.append(
                f"{whose}: its price is unknown, so --max-cost cannot be kept; leave --max-cost "
                "out or choose a model that litellm has a price for"
            )
    if keys or others:
        kind: Callable[[str], MemProbeError] = UsageError if others else MissingPrerequisite
        raise kind("\n  ".join(["nothing was started:", *others, *keys]))


def check_systems(config: RunConfig) -> None:
    """Refuse a run with systems that lack a package or a language model, all in one message.

    Raises `MissingPrerequisite`; `UsageError` for a system or an option that does
    not exist. A plug-in that is broken is the run's to report: it takes only
    itself out.
    """
    from adapters.memory.registry import Registry, lacks
    from adapters.models.minilm import MiniLM

    registry = Registry(MiniLM(), config.protocol, options=config.system_options)
    model = not config.model_of(Role.MEMORY).startswith("embedded/")
    lacking: list[str] = []
    for name in config.systems:
        try:
            card = registry.card(name)
        except AdapterError:
            continue
        why = lacks(card, model)
        if why is not None:
            lacking.append(why)
    if lacking:
        raise MissingPrerequisite("\n  ".join(["nothing was started:", *lacking]))


def roles_of_run(config: RunConfig) -> tuple[Role, ...]:
    """The roles that a run asks."""
    measuring = MEASURING if config.suite == "recovery" else PROBING
    memory = config.model_of(Role.MEMORY)
    if memory.startswith("embedded/"):
        return measuring
    from adapters.memory.registry import Registry
    from adapters.models.minilm import MiniLM

    registry = Registry(MiniLM(), config.protocol, names=config.systems)
    needed = any(registry.card(name).capabilities.takes_llm for name in config.systems)
    return (*measuring, Role.MEMORY) if needed else measuring


def _roles(config: RunConfig, model: str, names: list[str]) -> str:
    if model == config.model and len(names) > 3:
        others = len(config.model_roles)
        return "all roles without a --model-role" if others else "all roles"
    return f"{'role' if len(names) == 1 else 'roles'} {', '.join(names)}"


def _unknown(model: str) -> str:
    """Why no provider can be asked for this model; empty when one can."""
    if model.partition("/")[0] in _LOGIN:
        return ""
    try:
        name = _provider(model)[0]
    except Exception:
        return (
            "litellm knows no such provider; a model is PROVIDER/NAME, e.g. openai/gpt-5.4-mini, "
            "ollama/llama3.2 or hosted_vllm/NAME"
        )
    return "" if name else "the name of the model is missing behind its provider"


def _provider(model: str) -> tuple[str, str, str | None]:
    """litellm's reading of a model: its name, its provider, and the key found by other names."""
    from adapters.models.litellm_loader import load_litellm

    name, provider, key, _ = load_litellm().get_llm_provider(model)
    return name, provider, key


def missing_keys(model: str) -> list[str]:
    """Variables that must be set before this model can be asked."""
    if model.partition("/")[0] in _LOGIN:
        return []
    from adapters.models.litellm_loader import load_litellm

    _, provider, found = _provider(model)
    address = _ADDRESSED.get(provider, ())
    if address and not any(os.environ.get(name) for name in address):
        return list(address)
    if provider in _OPEN | _ELSEWHERE or found:
        return []
    if any(os.environ.get(name) for name in _ALSO.get(provider, ())):
        return []
    answer: dict[str, Any] = load_litellm().validate_environment(model)
    missing = [str(name) for name in answer["missing_keys"]]
    own = f"{provider.upper()}_API_KEY"
    # An empty variable counts as set for litellm and as none for the provider.
    if own not in missing and os.environ.get(own, "x") == "":
        missing.append(own)
    return missing


def _advice(model: str, missing: list[str]) -> str:
    provider = _provider(model)[1]
    if set(missing) <= set(_ADDRESSED.get(provider, ())):
        return f"no address of its server; set {missing[0]}, e.g. to http://127.0.0.1:8765/v1"
    joint = " or " if provider in _EITHER else " and "
    text = f"no key; set {joint.join(missing)} in the environment or in .env"
    if provider == "openai" and any(map(os.environ.get, _BASES)):
        text += " (for a local server that asks for none, any value)"
    return text


def _priced(model: str) -> bool:
    from adapters.models.prices import price_of

    return price_of(model) is not None
