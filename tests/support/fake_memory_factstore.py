"""The fact store's three questions, answered by the texts that they quote.

Recognised by the sentence that opens each prompt. Observations are the text's own
sentences; a decision goes by the words that an observation shares with a listed
fact, and where nearly all are shared, by the observation's own letters.
"""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any

OPENINGS = {
    "You draw observations from a text": "extract",
    "You keep a store of facts in order": "decide",
    "You write the statement of a fact": "synthesise",
}
SCRIPT: dict[str, list[str]] = {}
"""By kind of question, what a test has the model say next, word by word."""
SENTENCE = re.compile(r"(?<=[.!?])\s+|\n+")
WORD = re.compile(r"[^\W_]+")
NAME = re.compile(r"\b[A-Z]\w+(?: [A-Z]\w+)*")
FACT = re.compile(r'^(\d+)\. (".*") \(said by ', re.MULTILINE)


def kind_of(body: dict[str, Any]) -> str | None:
    """Which of the three questions a request is; None when it is another's."""
    messages = body.get("messages", [])
    opening = str(messages[0].get("content")) if len(messages) > 1 else ""
    return next((kind for text, kind in OPENINGS.items() if opening.startswith(text)), None)


def answer(body: dict[str, Any]) -> str | None:
    """The model's text for a request of the fact store; None when it is another's."""
    kind = kind_of(body)
    if kind is None:
        return None
    if SCRIPT.get(kind):
        return SCRIPT[kind].pop(0)
    prompt = str(body["messages"][1].get("content"))
    if kind == "extract":
        value: dict[str, Any] = {"observations": _observations(prompt)}
    elif kind == "decide":
        value = _decision(
            _quoted(prompt, "The observation"), facts(prompt), "- conflict:" in prompt
        )
    else:
        value = {"statement": _merged(prompt)}
    return json.dumps(value, ensure_ascii=False)


def observation(what: str, confidence: str = "High", **changes: Any) -> dict[str, Any]:
    """One observation as the model writes it."""
    value: dict[str, Any] = {
        "what": what,
        "category": "state",
        "who": "",
        "when": "",
        "why": "",
        "where": "",
        "confidence": confidence,
        "entities": list(dict.fromkeys(NAME.findall(what))),
        "speaker": "",
    }
    return {**value, **changes}


def decision(action: str, *numbers: int, agrees_with: int = 0) -> dict[str, Any]:
    """A decision as the model writes it."""
    return {
        "action": action,
        "facts": list(numbers),
        "agrees_with": agrees_with,
        "reason": "by the words they share",
    }


def facts(prompt: str) -> dict[int, str]:
    """The listed facts of a decision prompt, by number."""
    return {int(number): json.loads(text) for number, text in FACT.findall(prompt)}


def _quoted(prompt: str, name: str) -> Any:
    """The JSON value behind a line's name."""
    found = re.findall(rf"^{re.escape(name)}: (.*)$", prompt, re.MULTILINE)
    return json.loads(found[-1])


def _observations(prompt: str) -> list[dict[str, Any]]:
    text = _quoted(prompt, "The text")
    found = re.search(r"speaker: who says it, one of (\[.*\])\.$", prompt, re.MULTILINE)
    speakers = json.loads(found[1]) if found else [""]
    rows = []
    speaker = speakers[0]
    for sentence in SENTENCE.split(text):
        for name in speakers:
            label = name.capitalize().replace("_", " ")
            if sentence.startswith(f"{label}: "):
                speaker, sentence = name, sentence.removeprefix(f"{label}: ")
        if len(WORD.findall(sentence)) > 2:
            rows.append(observation(sentence.strip(), speaker=speaker))
    return rows


def _words(text: str) -> set[str]:
    return set(WORD.findall(text.casefold()))


def _decision(what: str, listed: dict[int, str], conflict: bool) -> dict[str, Any]:
    mine = _words(what)
    share = {n: len(mine & _words(text)) / len(mine | _words(text)) for n, text in listed.items()}
    best = max(share, key=lambda n: (share[n], -n))
    if what in listed[best]:
        return decision("reinforce", best)
    if share[best] > 0.6:
        draw = hashlib.sha256(what.encode("utf-8", "replace")).digest()[0] % 3
        if draw == 2 and not conflict:
            draw = 1
        return [decision("create"), decision("supersede", best), decision("conflict", best)][draw]
    if share[best] > 0.3:
        return decision("update", best)
    return decision("create")


def _merged(prompt: str) -> str:
    fact, what = _quoted(prompt, "The fact"), _quoted(prompt, "The observation")
    return f"{fact.rstrip('.')}; {what}"
