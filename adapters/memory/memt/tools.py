"""The tools that the policy knows: names and arguments are those it was trained on.

The descriptions are ours.
"""

from __future__ import annotations

from typing import Any

Schema = dict[str, Any]


def _tool(
    name: str, description: str, arguments: dict[str, Any], required: tuple[str, ...]
) -> Schema:
    properties = {
        key: {"type": "string", "description": value} if isinstance(value, str) else value
        for key, value in arguments.items()
    }
    parameters = {"type": "object", "properties": properties, "required": list(required)}
    function = {"name": name, "description": description, "parameters": parameters}
    return {"type": "function", "function": function}


_TIMES = {
    "start_time": 'When it began to hold; "" if that is not known.',
    "end_time": 'When it ceased to hold; "" if that is not known.',
}
_TIMED = {"turn_time": "The time of the turn it came from.", **_TIMES}
_QUERY = {"query": "What to look for."}

FORMATION: tuple[Schema, ...] = (
    _tool(
        "create_fact",
        "Keep a concrete, verifiable statement about the user or their world, other people and "
        "things included.",
        {"fact": "The statement, readable on its own.", **_TIMES},
        ("fact", "start_time", "end_time"),
    ),
    _tool(
        "create_experience",
        "Keep a lesson, a case or a skill that can be used again.",
        {"experience": "What was learnt, readable on its own.", **_TIMES},
        ("experience", "start_time", "end_time"),
    ),
    _tool(
        "update_persona",
        "Replace a person's profile by a complete new one.",
        {
            "name": 'The person\'s name; "User" when the user is not named.',
            "profile": "The whole profile, rewritten.",
        },
        ("name", "profile"),
    ),
    _tool(
        "update_summary",
        "Replace the running summary of the conversation by a complete new one.",
        {"content": "The whole summary, rewritten."},
        ("content",),
    ),
)

UPDATE: tuple[Schema, ...] = (
    _tool(
        "add_item",
        "Store the new item beside the others.",
        {"document": "The text to store.", **_TIMED},
        ("document",),
    ),
    _tool(
        "update_item",
        "Replace a stored item's text by an enriched one.",
        {
            "id": "The id of the stored item.",
            "document": "The enriched text; it keeps earlier values with their times.",
            **_TIMED,
        },
        ("id", "document"),
    ),
    _tool(
        "delete_item",
        "Remove a stored item that no longer holds.",
        {"id": "The id of the stored item."},
        ("id",),
    ),
    _tool(
        "ignore_item",
        "Store nothing: the new item is there already.",
        {"reason": "Why nothing changes."},
        ("reason",),
    ),
)

TURNS_K, TURNS_CAP = 5, 50

RETRIEVAL: tuple[Schema, ...] = (
    _tool("search_summary", "Find the running summary.", _QUERY, ("query",)),
    _tool("search_facts", "Find the facts nearest to a query.", _QUERY, ("query",)),
    _tool("search_experiences", "Find the experiences nearest to a query.", _QUERY, ("query",)),
    _tool(
        "search_personas",
        "Find a person's profile, by name or by what is looked for.",
        {**_QUERY, "name": "The person's exact name, if it is known."},
        ("query",),
    ),
    _tool(
        "search_turns",
        "Find the original messages nearest to a query.",
        {
            **_QUERY,
            "top_k": {
                "type": "integer",
                "description": f"How many, at most {TURNS_CAP}.",
                "default": TURNS_K,
            },
        },
        ("query",),
    ),
    _tool("finish", "End the search with the answer.", {"answer": "The answer."}, ("answer",)),
)


def names(tools: tuple[Schema, ...]) -> frozenset[str]:
    """The names of some tools."""
    return frozenset(tool["function"]["name"] for tool in tools)
