#!/usr/bin/env python3
"""Tell whether a server can play Mem-T's policy: `python health.py`. Standard library only.

Checks that the server is up, that it serves the model, that it answers, and that
it leaves the tags of tool calls in the text. Exit 0 when all is well, 1 when not.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import urllib.error
import urllib.request
from typing import Any

TOOL = {
    "type": "function",
    "function": {
        "name": "finish",
        "description": "End with the answer.",
        "parameters": {
            "type": "object",
            "properties": {"answer": {"type": "string"}},
            "required": ["answer"],
        },
    },
}
SYSTEM = (
    f"You answer by calling this tool:\n\n{json.dumps([TOOL], indent=2)}\n\n"
    'Form: <tool_call> {"name": "finish", "arguments": {"answer": "..."}} </tool_call>'
)


class Unhealthy(Exception):
    """What is wrong, and what to do about it."""


def _get(url: str, key: str, timeout: float, body: dict[str, Any] | None = None) -> Any:
    data = json.dumps(body).encode() if body is not None else None
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {key}"}
    request = urllib.request.Request(url, data, headers)
    # A proxy of the environment must not come between us and loopback.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(request, timeout=timeout) as response:
        return json.loads(response.read() or b"{}")


def _asked(url: str, key: str, timeout: float, body: dict[str, Any] | None = None) -> Any:
    try:
        return _get(url, key, timeout, body)
    except urllib.error.HTTPError as error:
        said = error.read().decode("utf-8", "replace")[:300]
        raise Unhealthy(f"{url} answered {error.code}: {said}") from error
    except (OSError, ValueError) as error:
        raise Unhealthy(f"{url} cannot be asked ({error}); start deploy/memt/serve.sh") from error


def check(base: str, model: str, key: str, timeout: float) -> str:
    """One line of what was found; raises `Unhealthy`."""
    served = [row.get("id") for row in _asked(f"{base}/models", key, timeout).get("data", [])]
    if model not in served:
        raise Unhealthy(f"{base} serves {', '.join(map(str, served)) or 'nothing'}, not {model}")
    body = {
        "model": model,
        "messages": [
            {"role": "system", "content": SYSTEM},
            {"role": "user", "content": "What is the capital of Portugal?"},
        ],
        "temperature": 0,
        "max_tokens": 128,
        "chat_template_kwargs": {"enable_thinking": False},
    }
    reply = _asked(f"{base}/chat/completions", key, timeout, body)
    try:
        message = reply["choices"][0]["message"]
    except (LookupError, TypeError) as error:
        raise Unhealthy(f"{base} gave no completion: {json.dumps(reply)[:300]}") from error
    if message.get("tool_calls"):
        raise Unhealthy("the server parses tool calls; start it without --tool-call-parser")
    if message.get("reasoning_content") or message.get("reasoning"):
        raise Unhealthy("the server parses reasoning; start it without --reasoning-parser")
    text = message.get("content") or ""
    if not text.strip():
        raise Unhealthy("the answer is empty")
    tagged = "with" if "<tool_call>" in text else "WITHOUT"
    return f"{model} at {base} answers {tagged} a tagged call: {text.strip()[:100]!r}"


def main(arguments: list[str] | None = None) -> int:
    """Print what was found; 0 when the server can be used."""
    parser = argparse.ArgumentParser(description=__doc__)
    default = os.environ.get("HOSTED_VLLM_API_BASE", "http://127.0.0.1:8765/v1")
    parser.add_argument("--url", default=default, help="base URL (HOSTED_VLLM_API_BASE)")
    parser.add_argument("--model", default="Mem-T-4B")
    parser.add_argument("--timeout", type=float, default=60.0, help="seconds for one request")
    given = parser.parse_args(arguments)
    # Not an option: a key on a command line can be seen by others.
    key = os.environ.get("HOSTED_VLLM_API_KEY", "EMPTY")
    try:
        print(check(given.url.rstrip("/"), given.model, key, given.timeout))
    except Unhealthy as error:
        print(f"unhealthy: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
