"""Word lists of the free-text rules. `CONFLICT_STATUS`, `NOT_APPLIED` and
`SOURCE_CONCEPTS` hold regular expressions, the others plain substrings, all lower case."""

from __future__ import annotations

NO_CHANGE = (
    *(f"{negation} change" for negation in ("not", "hasn't", "did not", "didn't")),
    "no change",
    "unchanged",
)

CHANGE_VERBS = (
    "change", "switch", "move", "transfer", "update", "adopt", "went to", "replace",
    "took over", "cancel", "transition", "migrat",
)  # fmt: skip

TRIGGER_SYNONYMS: dict[str, tuple[str, ...]] = {
    "user": ("user", "they", "the person", "their", "i "),
    "stated": (
        "stated", "said", "told", "mentioned", "announced", "communicated", "explained", "noted",
    ),
    "organizers": ("organizers", "conference", "committee", "official"),
    "team": ("team", "agreed", "decided", "consensus", "voted"),
}  # fmt: skip

AGENTS: dict[str, tuple[str, ...]] = {
    "user": ("user", "they", "the person", "their"),
    "assistant": ("assistant", "ai", "model", "system"),
    "third": ("third party", "third-party", "someone", "colleague", "friend", "another person"),
}

SOURCE_CONCEPTS: dict[str, tuple[str, ...]] = {
    "user explicitly stated": (
        "user (?:stated|said|communicated|told|mentioned|announced|explicitly)",
        "from the user",
        "the user directly",
    ),
    "assistant": ("assistant",),
    "third_party": (
        "third_party|third party", "someone else", "colleague", "friend", "another person",
        "external source",
    ),
    "reactivat": (
        "reactivat", "recall", "remember", "referred back", "brought up the old",
        "mentioned the previous owner", "after (?:first )?(?:recalling|mentioning)",
    ),
}  # fmt: skip

STRUCTURE: tuple[tuple[str, ...], ...] = (
    ("user", "assistant", "they", "the person", "colleague", "friend"),
    (
        "stated", "said", "mentioned", "communicated", "confirmed", "denied", "rejected",
        "corrected", "introduced", "error",
    ),
    (
        "remains", "still", "unchanged", "not", "did not", "switched", "changed", "transferred",
        "took over",
    ),
)  # fmt: skip
"""Agent, action, verdict."""

CONFLICT_SOURCES: dict[str, tuple[str, ...]] = {
    "assistant": (
        "assistant", "hallucin", "made up", "fabricat", "error", "incorrect", "mistake", "wrong",
        "generated",
    ),
    "third_party": (
        "colleague", "friend", "coworker", "teammate", "someone", "third party", "third-party",
        "another person", "jamie", "they mentioned", "was mentioned by", "their", "new hire",
        "suggested", "suggestion", "rumor", "speculation",
    ),
    "stale_tool": (
        "stale", "outdated", "old", "cached", "dashboard", "onboarding doc", "out of date",
        "no longer",
    ),
}  # fmt: skip

CONFLICT_STATUS: dict[str, tuple[str, ...]] = {
    "not_accepted": (
        r"(?:not|didn't|did not) (?:adopt|accept)", "rejected",
        "not confirmed", "speculative", "rumor", "unverified", "suggested", "proposed",
        "considered", "hypothetical", r"not (?:the user|yours|theirs?|his|her)", "guest pass",
        "one-time", "temporary", "promo", r"(?:might|may) take over", "helping with",
    ),
    "different_entity": (
        "different", "separate", "another", "other", "not the user's", "not this",
        r"their (?:service|project|team)", r"a (?:colleague|friend|teammate)'s",
        r"for (?:a different|another|marcus)", r"not for (?:your|the user|this)", "mock",
        "local test", "frontend",
    ),
    "stale": (
        "stale", "outdated", "out of date", r"no longer (?:valid|current)", "deprecated",
        r"old (?:version|config)", "cached", "was previously",
    ),
}  # fmt: skip

NOT_APPLIED = (
    r"not the user", r"not yours", r"not this (?:service|project)", "remains", "still",
    "unchanged", r"(?:did not|didn't|hasn't) change", "not updated", "kept",
    r"st(?:uck|icking) with", "current", "stayed", r"not adopted",
    r"(?:separate|different|another) (?:service|project)", "not as the user's", "but not",
    "not the same",
)  # fmt: skip
