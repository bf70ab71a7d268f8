"""Ids that are safe as a path, a collection name and a cache key.

An id from outside is never rejected for its characters: what is not in
`[a-z0-9_]` is escaped, and a short hash keeps two escaped ids apart.
"""

from __future__ import annotations

import hashlib
import re

_SAFE = re.compile(r"[a-z0-9][a-z0-9_]{0,63}\Z")


def slug(raw: str) -> str:
    """`raw` itself when it is safe, else a readable stem with a hash of the original.

    Distinct inputs give distinct slugs; the result never has `/`, `..`, `:`,
    spaces, upper case or more than 64 characters.
    """
    if _SAFE.match(raw):
        return raw
    stem = re.sub(r"[^a-z0-9]+", "_", raw.lower()).strip("_")[:40] or "x"
    digest = hashlib.sha256(raw.encode("utf-8", "surrogatepass")).hexdigest()[:12]
    return f"{stem}_{digest}"
