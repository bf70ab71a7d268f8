"""A model that writes the conversations of a suite, from what its prompt holds and nothing else."""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any


def _field(user: str, name: str) -> Any:
    """A line's JSON value; None when the prompt has no such line."""
    found = re.search(rf"^{re.escape(name)}: (.*)$", user, re.MULTILINE)
    return json.loads(found.group(1)) if found else None


def _number(*parts: str) -> int:
    return int.from_bytes(hashlib.sha256("\0".join(parts).encode()).digest()[:6])


def _marks(user: str, place: str) -> str:
    """Twelve words that no other prompt gives: a model's texts differ, too."""
    return " ".join(f"w{_number(user, place, str(i)):x}" for i in range(12))


def _said(user: str) -> tuple[str, str, str]:
    """What the person says, what the assistant says, and what a tool puts out."""
    old, new = _field(user, "The person's value until now"), _field(user, "The second value")
    trigger, reason = _field(user, "What set it off"), _field(user, "Why")
    choice, unrelated = (
        _field(user, "Values to choose from"),
        _field(user, "The word in an unrelated role"),
    )
    if choice is not None:
        return f"My aunt likes {choice[_number(user) % len(choice)]}.", "Does she?", ""
    if unrelated is not None:
        return f"There is a novel called {unrelated}.", "By whom?", ""
    looked = _field(user, "The value they look at and leave")
    if looked is not None:
        kept = _field(user, "The person's value, which they keep")
        return f"I had a look at {looked} but did not take it and stay with {kept}.", "Fine.", ""
    own = _field(user, "The person's value now")
    if own is not None:
        return f"Remind me before the evening at {own}.", "I will.", ""
    recall = ""
    if _field(user, "Recall the old value first") or _field(user, "Recall the old value by name"):
        recall = f"Remember {old} and its old clock. "
    settled = _field(user, "The new value")
    if settled is not None:
        return f"We meet at {settled}: {reason}.", "Noted.", ""
    how = _field(user, "How it comes")
    if how == "user_explicit":
        text = f"{recall}As {trigger}, the evenings are at {new} these days: {reason}."
        return text, "Good.", ""
    if how == "assistant_hallucination":
        return "When does the evening begin?", f"The evening at {new} begins at six.", ""
    if how == "stale_tool":
        return "What does the board say?", "That is old.", f"2019 listing: {new}"
    if how == "third_party":
        source = _field(user, "Source, where it is not the person")
        return f"{recall}Dov, {source}, likes {new} and says so.", "He may.", ""
    if trigger is not None:
        return f"{recall}Sad: {trigger}.", "Sorry to hear.", ""
    return "What do tulips cost?", "It depends.", ""


def conversation(user: str) -> dict[str, Any]:
    """A conversation of as few messages as the prompt allows, each unlike any other."""
    found = re.search(r"^Messages of the person: (\d+) to \d+$", user, re.MULTILINE)
    n = int(found.group(1)) if found else 1
    person, assistant, tool = _said(user)
    dialogue = []
    for i in range(n):
        said = person if i == 0 else "And then?"
        dialogue.append({"role": "user", "content": f"{_marks(user, f'u{i}')} {said}"})
        if i == 0 and tool and "tool_output" in _field(user, "Roles that may speak"):
            dialogue.append({"role": "tool_output", "content": tool})
        text = assistant if i == 0 else "Then see."
        dialogue.append({"role": "assistant", "content": f"{_marks(user, f'a{i}')} {text}"})
    return {"dialogue": dialogue}
