"""What the fake server's model says: decided by the request's own content, never by chance.

The role of a request shows in the keys its schema or its instruction asks for.
Answers follow the material (a label is read from the memory, a score from the
overlap with the truth), so that whole runs through the fake have structure.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import math
import re
from typing import Any

from tests.support import fake_suite, fake_writer

WORD = re.compile(r"[a-z]{4,}")
KEY = re.compile(r'"(\w+)"\s*:')
REACTIONS = ("too_shallow", "followup", "add_context", "correction", "expose_gap", "too_deep")


def number(*parts: str) -> int:
    """A stable number of some texts."""
    return int.from_bytes(hashlib.sha256("\0".join(parts).encode("utf-8", "replace")).digest()[:8])


def words(text: str) -> set[str]:
    return set(WORD.findall(text.lower()))


def overlap(a: str, b: str) -> float:
    """Share of a's words that are in b."""
    mine = words(a)
    return len(mine & words(b)) / len(mine) if mine else 0.0


def _json_at(text: str) -> Any:
    """The JSON value that a text begins with; more text may follow it."""
    return json.JSONDecoder().raw_decode(text.lstrip())[0]


def content_text(content: Any) -> str:
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "\n".join(p if isinstance(p, str) else str(p.get("text", "")) for p in content)
    return ""


MEMORY_SYSTEMS = (
    "fake_memory_graphiti",
    "fake_memory_mem0",
    "fake_memory_amem",
    "fake_memory_memt",
    "fake_memory_cognee",
    "fake_memory_memoryos",
    "fake_memory_factstore",
)


def _of_a_memory_system(body: dict[str, Any]) -> str | None:
    """The answer to a memory system's own request; each module knows its system's."""
    for name in MEMORY_SYSTEMS:
        said: str | None = importlib.import_module(f"tests.support.{name}").answer(body)
        if said is not None:
            return said
    return None


TOOL_USERS = ("fake_memory_langmem",)


def tool_calls(body: dict[str, Any]) -> list[dict[str, Any]]:
    """The tool calls of the assistant's message, for who offers tools; often none."""
    if body.get("tools"):
        for name in TOOL_USERS:
            found = importlib.import_module(f"tests.support.{name}").tool_calls(body)
            if found is not None:
                return list(found)
    return []


def answer(body: dict[str, Any]) -> str:
    """The text of the assistant's message for a chat request."""
    remembered = _of_a_memory_system(body)
    if remembered is not None:
        return remembered
    messages = body.get("messages", [])
    system = "\n".join(content_text(m["content"]) for m in messages if m["role"] == "system")
    user = "\n".join(content_text(m["content"]) for m in messages if m["role"] == "user")
    form = body.get("response_format") or {}
    schema = (form.get("json_schema") or {}).get("schema")
    if schema is not None:
        keys = set(schema.get("properties", {}))
    else:
        # The templates' own sentence; what the gateway adds to it is worded otherwise.
        sentence = "Answer with one JSON object: "
        place = system if sentence in system else user
        asked = place.rpartition(sentence)[2].partition("\n")[0] if sentence in place else ""
        keys = set(KEY.findall(asked))
        if "hidden_bank" in system:
            keys = {"feedback_type", "text"}
    value = _by_keys(keys, system, user)
    if value is not None:
        return json.dumps(value, ensure_ascii=False)
    if schema is not None:
        return json.dumps(instance(schema, schema, user), ensure_ascii=False)
    if form.get("type") == "json_object":
        return json.dumps(_extraction(system + user, user), ensure_ascii=False)
    return _assistant(system, user)


def _by_keys(keys: set[str], system: str, user: str) -> dict[str, Any] | None:
    if "feedback_type" in keys:
        return _feedback(system, user)
    if "per_pref" in keys:
        return _preferences(user)
    if "can_invite" in keys:
        return {"can_invite": number("oracle", user) % 8 != 0, "reason": "the topic allows it"}
    if "disclosed" in keys:
        return _disclosure(user)
    if "cause" in keys:
        causes = ("agent_elicitation_failure", "simulator_too_strict", "unclassified")
        return {"cause": causes[number("cause", user) % 3], "reason": "as the replies show"}
    if "label" in keys:
        return _slot_fill(system, user)
    if "score" in keys:
        return _judge(user)
    if "dialogue" in keys:
        return fake_suite.conversation(user)
    return fake_writer.by_keys(keys, user)


def _field(text: str, name: str) -> str:
    """A line's value, with JSON quoting undone."""
    match = re.search(rf"^{re.escape(name)}[^:\n]*: (.*)$", text, re.MULTILINE)
    if match is None:
        return ""
    raw = match.group(1)
    try:
        value = json.loads(raw)
    except ValueError:
        return raw
    return value if isinstance(value, str) else raw


def _feedback(system: str, user: str) -> dict[str, Any]:
    task = _field(user, "What you asked for at the start")
    found = re.search(r"^Turn (\d+)\.", user, re.MULTILINE)
    turn = int(found.group(1)) if found else 1
    last = 2 + number("turns", task, system[-400:]) % 3
    if turn >= last:
        return {"feedback_type": "satisfied", "text": f"That settles it, thanks ({turn} rounds)."}
    kind = REACTIONS[number("reaction", task, str(turn)) % len(REACTIONS)]
    facts = [t for t in _bank(system) if t]
    text = "Could you be more specific about that?"
    if facts:
        best = max(facts, key=lambda fact: (overlap(task, fact), number(fact)))
        shown = best if number("show", task) % 5 else facts[number("any", task) % len(facts)]
        text = f"For me it is like this: {shown}"
    return {"feedback_type": kind, "text": text}


def _bank(system: str) -> list[str]:
    start = system.find('{\n "profile"')
    try:
        bank = _json_at(system[start:])["hidden_bank"]
    except (ValueError, KeyError):
        return []
    found: list[str] = []
    stack: list[Any] = [bank]
    while stack:
        node = stack.pop()
        if isinstance(node, dict):
            if isinstance(node.get("short"), str):
                found.append(node["short"])
            stack.extend(node.values())
        elif isinstance(node, list):
            stack.extend(node)
    return sorted(found)


def _preferences(user: str) -> dict[str, Any]:
    count = len(re.findall(r"^\d+\. \[", user, re.MULTILINE))
    scale: tuple[int | str, ...] = (1, 2, 3, 4, 5, "na")
    rows = [
        {"idx": i, "score": scale[number("pref", str(i), user) % 6], "reason": "as the reply shows"}
        for i in range(1, count + 1)
    ]
    return {"per_pref": rows}


def _transcript(user: str) -> list[dict[str, Any]]:
    start = user.find("The conversation:\n")
    try:
        turns = _json_at(user[start + len("The conversation:\n") :])
    except ValueError:
        return []
    return [t for t in turns if isinstance(t, dict)]


def _disclosure(user: str) -> dict[str, Any]:
    short = _field(user, "The fact")
    said = [str(t.get("user", "")) for t in _transcript(user)]
    best = max(said, key=lambda s: overlap(short, s), default="")
    shown = overlap(short, best) >= 0.6
    return {"disclosed": shown, "evidence": best if shown else ""}


def _merged(readings: str, wanted: str) -> dict[str, Any]:
    """One of the readings of a memory's parts."""
    best = max(_json_at(readings), key=lambda c: (overlap(wanted, c["label"]), number(c["label"])))
    return {"label": best["label"], "reason": f"part {best['part']} is the plainest"}


def _slot_fill(system: str, user: str) -> dict[str, Any]:
    readings = system.partition("The readings, as a JSON list:\n")[2]
    if readings:
        return _merged(readings, _field(user, "Dimension").replace("_", " "))
    marker = "The memory, as a JSON list:\n"
    raw = system[system.find(marker) + len(marker) :] if marker in system else "[]"
    try:
        memories = [m if isinstance(m, str) else json.dumps(m) for m in _json_at(raw)]
    except ValueError:
        memories = []
    wanted = f"{_field(user, 'Dimension').replace('_', ' ')} {_field(user, 'What belongs')}"
    ranked = sorted(memories, key=lambda m: (-overlap(wanted, m), number(wanted, m)))
    if not ranked or number("known", wanted, ranked[0]) % 4 == 0:
        return {"label": "unknown", "reason": "nothing speaks to it"}
    text = ranked[0].rpartition("For me it is like this: ")[2]
    return {"label": " ".join(text.split()[:15]) or "unknown", "reason": "the nearest entry"}


def _judge(user: str) -> dict[str, Any]:
    recovered = _field(user, "Recovered")
    truth = f"{_field(user, 'True, in short')} {_field(user, 'True, in full')}"
    share = overlap(recovered, truth) if recovered != "unknown" else 0.0
    return {"score": math.floor(share * 4 + 0.5) / 4, "reason": "by the words they share"}


def _extraction(text: str, user: str) -> dict[str, Any]:
    """Memories out of a dialogue, in the two forms that extraction prompts ask for."""
    lines = re.findall(r"^\s*user: (.+)$", user, re.MULTILINE | re.IGNORECASE)
    facts = list(dict.fromkeys(line.strip()[:300] for line in lines))
    if '"facts"' in text:
        return {"facts": facts}
    return {
        "memory": [
            {"id": str(i), "text": fact, "attributed_to": "user", "event": "ADD"}
            for i, fact in enumerate(facts)
        ]
    }


def _assistant(system: str, user: str) -> str:
    topic = " ".join(user.split()[:14])
    notes = re.findall(r'^- "(.*)"$', system, re.MULTILINE)
    known = f" As you told me, {notes[number(user) % len(notes)][:80]}." if notes else ""
    step = number(system[-200:], user) % 1000
    return (
        f"Let us take this one step at a time: {topic}.{known} Start with option {step}, see how "
        "it feels, and tell me what gets in the way so that I can fit the next step to you."
    )


def instance(schema: dict[str, Any], root: dict[str, Any], seed: str) -> Any:
    """A value that fits a JSON schema."""
    if "$ref" in schema:
        return instance(root["$defs"][schema["$ref"].rpartition("/")[2]], root, seed)
    if "const" in schema:
        return schema["const"]
    if schema.get("enum"):
        return schema["enum"][number(seed) % len(schema["enum"])]
    for many in ("anyOf", "oneOf"):
        if schema.get(many):
            return instance(schema[many][0], root, seed)
    kind = schema.get("type")
    if kind == "object":
        return {k: instance(v, root, seed + k) for k, v in (schema.get("properties") or {}).items()}
    if kind == "array":
        return [instance(schema.get("items", {}), root, seed)]
    plain: dict[Any, Any] = {"integer": 1, "number": 0.5, "boolean": True, "null": None}
    return plain.get(kind, " ".join(seed.split()[:6]) or "text")


def vector(text: str, dimensions: int = 384) -> list[float]:
    """A unit vector of hashed words: near texts are near."""
    values = [0.0] * dimensions
    for word in text.lower().split() or [""]:
        spot = number(word)
        values[spot % dimensions] += 1.0 if spot & 1 << 40 else -1.0
    norm = math.sqrt(sum(v * v for v in values)) or 1.0
    return [v / norm for v in values]
