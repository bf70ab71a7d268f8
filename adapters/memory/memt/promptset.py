"""The policy's prompt texts: ours, or a folder of the user's own.

Mem-T's policy was trained on its authors' texts. Ours keep their structure, tool
names and tags in other words, so that they are out of its distribution; whoever
has the originals may put them into files of our format and name the folder.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import prompts
from memprobe.errors import PromptError
from prompts import Prompt

FORMATION, UPDATE, RETRIEVAL = "memt_formation", "memt_update", "memt_retrieval"
OBSERVATION, REMINDER, ANSWER = "memt_observation", "memt_reminder", "memt_answer"

REQUIRED: Mapping[str, frozenset[str]] = {
    FORMATION: frozenset({"tools", "summary", "personas", "turn"}),
    UPDATE: frozenset({"tools", "candidate", "related"}),
    RETRIEVAL: frozenset({"tools", "query"}),
    OBSERVATION: frozenset({"observation"}),
    REMINDER: frozenset(),
    ANSWER: frozenset({"query", "memories"}),
}
"""What each file must fill in: without it the policy would not see its input."""

OPTIONAL: Mapping[str, frozenset[str]] = {
    FORMATION: frozenset(),
    UPDATE: frozenset(),
    RETRIEVAL: frozenset({"max_steps", "must_answer"}),
    OBSERVATION: frozenset({"query"}),
    REMINDER: frozenset({"query"}),
    ANSWER: frozenset({"must_answer"}),
}
"""What each file may fill in besides."""


@dataclass(frozen=True, slots=True)
class PromptSet:
    """Six prompts. `identity` is a name and a hash of all their texts."""

    name: str
    identity: str
    prompts: Mapping[str, Prompt]

    def messages(self, prompt: str, **variables: Any) -> list[dict[str, str]]:
        """A prompt's messages, ready to send; superfluous variables are left out."""
        known = REQUIRED[prompt] | OPTIONAL[prompt]
        given = {key: value for key, value in variables.items() if key in known}
        rendered = self.prompts[prompt].render(**given)
        return [{"role": m.role, "content": m.content} for m in rendered]


def load(folder: str = "") -> PromptSet:
    """Our set, or that of a folder. Raises `PromptError` naming the file and what it lacks."""
    if not folder:
        return _bundled()
    home = Path(folder).expanduser()
    if not home.is_dir():
        raise PromptError(f"memt: the prompt set {folder!r} is no folder")
    missing = [f"{name}.md" for name in REQUIRED if not (home / f"{name}.md").is_file()]
    if missing:
        raise PromptError(f"memt: the prompt set {folder!r} lacks {', '.join(missing)}")
    return _checked("own", {name: _own(home / f"{name}.md") for name in REQUIRED})


@lru_cache(maxsize=1)
def _bundled() -> PromptSet:
    return _checked("memprobe", {name: prompts.load(name) for name in REQUIRED})


def _own(path: Path) -> Prompt:
    try:
        return prompts.load_file(path)
    except PromptError as error:
        raise PromptError(f"{path}: {error}") from error
    except (OSError, UnicodeDecodeError) as error:
        raise PromptError(f"{path} cannot be read: {error}") from error


def _checked(name: str, found: dict[str, Prompt]) -> PromptSet:
    for key, prompt in found.items():
        used = _used(key, prompt)
        lacking = sorted(REQUIRED[key] - used)
        if lacking:
            wanted = ", ".join(f"{{{{ {variable} }}}}" for variable in lacking)
            raise PromptError(f"memt: {key}.md does not use {wanted}")
        unknown = sorted(used - REQUIRED[key] - OPTIONAL[key])
        if unknown:
            there = ", ".join(sorted(REQUIRED[key] | OPTIONAL[key])) or "none"
            raise PromptError(
                f"memt: {key}.md uses {', '.join(unknown)}, which it is not given; it has {there}"
            )
    digest = hashlib.sha256("\n".join(found[key].digest for key in REQUIRED).encode())
    return PromptSet(name, f"{name}:{digest.hexdigest()[:12]}", found)


def _used(key: str, prompt: Prompt) -> frozenset[str]:
    try:
        return prompts.variables(prompt)
    except PromptError as error:
        raise PromptError(f"memt: {key}.md: {error}") from error
