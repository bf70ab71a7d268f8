"""The values of settings as text: how a flag, a variable or a file says them."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Collection, Mapping
from typing import Any

from memprobe.types import Role


def nearest(name: str, known: Collection[str]) -> str:
    """`; did you mean ...?` when something known is close, else nothing."""
    close = difflib.get_close_matches(name, sorted(known), n=1, cutoff=0.6)
    return f"; did you mean {close[0]!r}?" if close else ""


def display(value: Any) -> str:
    """A value as text, the way a flag takes it."""
    if value is None:
        return "(none)"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping):
        pairs = [
            f"{k}.{name}={display(inner)}" if isinstance(v, Mapping) else f"{k}={v}"
            for k, v in value.items()
            for name, inner in (v.items() if isinstance(v, Mapping) else [("", v)])
        ]
        return ",".join(pairs) or "(none)"
    if isinstance(value, (list, tuple)):
        return ",".join(str(item) for item in value) or "(none)"
    return str(value)


def split(raw: Any) -> list[Any]:
    """The parts of a list given as text with commas, or as a list."""
    parts = raw if isinstance(raw, (list, tuple)) else str(raw).split(",")
    return [part.strip() if isinstance(part, str) else part for part in parts if part != ""]


def users(raw: Any) -> Any:
    """None for all, a count, or ids."""
    if isinstance(raw, (list, tuple)):
        return tuple(raw)
    text = str(raw).strip()
    if text == "all":
        return None
    if re.fullmatch(r"[+-]?\d+", text):
        if int(text) < 1:
            raise ValueError("at least one user")
        return int(text)
    return tuple(split(text))


def roles(raw: Any) -> dict[str, str]:
    """Models by role; raises `ValueError` for an unknown or doubled one."""
    pairs = list(raw.items()) if isinstance(raw, Mapping) else []
    if not isinstance(raw, Mapping):
        for part in (p for item in split(raw) for p in split(item)):
            role, sign, model = str(part).partition("=")
            if not sign or not role.strip() or not model.strip():
                raise ValueError(f"{part!r} is not ROLE=MODEL")
            pairs.append((role.strip(), model.strip()))
    out: dict[str, str] = {}
    for role, model in pairs:
        known = [r.value for r in Role]
        if role not in known:
            raise ValueError(f"there is no role {role!r}{nearest(role, known)}")
        if out.get(role, model) != model:
            raise ValueError(f"role {role!r} is given two models: {out[role]} and {model}")
        out[role] = model
    return out


def system_options(raw: Any) -> dict[str, dict[str, Any]]:
    """Options by system and field; values are read as JSON where they are, else as text."""
    if isinstance(raw, Mapping):
        if not all(isinstance(fields, Mapping) for fields in raw.values()):
            raise ValueError("a table for each system, e.g. amem = { evo_threshold = 50 }")
        return {str(name): dict(fields) for name, fields in raw.items()}
    out: dict[str, dict[str, Any]] = {}
    # Semicolons part those of a variable: a value may hold commas.
    given = raw if isinstance(raw, (list, tuple)) else str(raw).split(";")
    for part in given:
        place, sign, text = str(part).partition("=")
        system, dot, name = place.strip().rpartition(".")
        if not sign or not dot or not system or not name:
            raise ValueError(f"{part!r} is not SYSTEM.FIELD=VALUE")
        try:
            value = json.loads(text)
        except ValueError:
            value = text.strip()
        fields = out.setdefault(system, {})
        if fields.get(name, value) != value:
            raise ValueError(f"{place} is given two values: {fields[name]} and {value}")
        fields[name] = value
    return out
