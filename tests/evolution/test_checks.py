"""A sound trajectory passes; each planted fault is found where it was planted."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from memprobe.evolution.checks import check_trajectory
from memprobe.evolution.problems import Problem
from tests.evolution.support import (
    BACKUP,
    CHATTY,
    ENGINE,
    NOISE,
    REPLACED,
    RETENTION,
    TERSE,
    raw,
    say,
    trajectory,
)

Change = Callable[[dict[str, Any]], object]


@pytest.mark.parametrize("category", ["C1", "C2", "C3", "C4", "C5", "C6"])
@pytest.mark.parametrize("level", ["L1", "L2", "L3"])
def test_a_sound_trajectory_of_every_category_and_level_passes(category: str, level: str) -> None:
    assert check_trajectory(trajectory(category=category, level=level)) == []


def put(*where: str | int, to: object) -> Change:
    def change(made: Any) -> None:
        for key in where[:-1]:
            made = made[key]
        made[where[-1]] = to

    return change


def text(state: int, more: str) -> Change:
    return lambda made: say(made, state, more)


def noise(k: int, more: str) -> Change:
    def change(made: dict[str, Any]) -> None:
        made["noise_documents"][k]["text"] += f"\n{more}"

    return change


def lead(state: int, before: str) -> Change:
    def change(made: dict[str, Any]) -> None:
        own = made["states"][state]["document"]
        own["text"] = f"{before}\n{own['text']}"

    return change


def without(state: int, words: str) -> Change:
    def change(made: dict[str, Any]) -> None:
        own = made["states"][state]["document"]
        assert words in own["text"]
        own["text"] = own["text"].replace(words, "")

    return change


def worded(old: str, new: str) -> Change:
    """A claim in other words wherever it stands."""

    def change(made: dict[str, Any]) -> None:
        whole = json.dumps(made).replace(json.dumps(old)[1:-1], json.dumps(new)[1:-1])
        made.update(json.loads(whole))

    return change


def both(*changes: Change) -> Change:
    def change(made: dict[str, Any]) -> None:
        for one in changes:
            one(made)

    return change


def alike(made: dict[str, Any]) -> None:
    """The second author's documents in the words of the first."""
    for i in (1, 3):
        own = made["states"][i]
        first = made["states"][i - 1]["document"]["text"]
        own["document"]["text"] = f"{first} {' '.join(own['doc_claims'])}"


def longer(made: dict[str, Any]) -> None:
    made["states"][1]["document"]["text"] += " word" * 300


def long_claim(made: dict[str, Any]) -> None:
    worded(BACKUP, f"{BACKUP[:-1]} in a {'very ' * 22}calm manner.")(made)
    for question in made["questions"]:
        question["claims"] = [made["states"][0]["claims"][1]]


def late(made: dict[str, Any]) -> None:
    made["states"][2]["document"]["time"] = "2024-03-20T09:00:00+00:00"


def hurried(made: dict[str, Any]) -> None:
    for i, state in enumerate(made["states"]):
        state["document"]["time"] = f"2024-03-04T0{i}:00:00+00:00"


def other_claim(claim: str) -> Change:
    return worded(RETENTION, claim)


SINGLE: list[tuple[str, str, Change, str, str, str, int | None]] = [
    # category, level, change, severity, rule, part of the message, state
    ("C5", "L1", put("category", to="C4"), "error", "id", "the category is C4", None),
    ("C5", "L1", put("states", 2, "index", to=3), "error", "index", "has index 3", 2),
    ("C5", "L1", put("states", 1, "document", "id", to="c5_d9"), "error", "id", "'c5_d9'", 1),
    ("C2", "L1", put("noise_documents", 0, "id", to="n1"), "error", "id", "noise document 1", None),
    ("C5", "L1", late, "error", "time", "is not after", 2),
    ("C4", "L1", late, "warning", "time", "an older document arrives late", 2),
    ("C5", "L1", hurried, "warning", "time", "span 0 days", None),
    (
        "C2", "L1", put("noise_documents", 1, "time", to="2024-03-05T00:00:00+00:00"),
        "error", "time", "n2: 2024-03-05", None,
    ),
    ("C2", "L1", put("noise_after", to=[0]), "error", "noise documents", "1 entries for 4", None),
    ("C2", "L1", put("noise_after", 3, to=7), "error", "noise documents", "behind state 7", None),
    (
        "C2", "L1", both(put("noise_documents", to=[]), put("noise_after", to=[])),
        "error", "noise documents", "0 noise documents, C2 has 4", None,
    ),
    (
        "C5", "L1", put("states", 1, "claims", to=[ENGINE, RETENTION]),
        "error", "cumulative", "a claim vanishes in a state that is to update", 1,
    ),
    (
        "C5", "L1", put("states", 2, "change_reason", to=" "),
        "error", "change reason", "supersede without", 2,
    ),
    ("C5", "L1", put("states", 2, "action", to="create"), "error", "action", "for state 0", 2),
    ("C5", "L1", put("states", 2, "action", to="none"), "error", "action", "systems only", 2),
    ("C5", "L1", put("states", 0, "action", to="update"), "error", "action", "first state", 0),
    ("C5", "L1", put("states", 1, "action", to="reinforce"), "error", "action", "adds 1", 1),
    ("C5", "L1", put("states", 3, "action", to="update"), "error", "action", "adds no claim", 3),
    ("C5", "L1", put("states", 3, "action", to="supersede"), "error", "action", "retires no", 3),
    ("C5", "L1", put("states", 3, "action", to="conflict"), "error", "action", "conflict adds", 3),
    (
        "C5", "L1", put("states", 2, "doc_claims", to=[BACKUP]),
        "error", "doc claims", "nothing in doc_claims says", 2,
    ),
    (
        "C5", "L1", put("states", 0, "doc_claims", to=[ENGINE]),
        "error", "doc claims", "of state 0 are not its claims", 0,
    ),
    (
        "C5", "L1", both(
            put("states", 2, "doc_claims", to=[REPLACED, "Aldermere Bakeries sells bread."]),
            text(2, "Aldermere Bakeries sells bread."),
        ),
        "warning", "doc claims", "not among the claims", 2,
    ),
    (
        "C5", "L1", put("states", 3, "claims", to=[BACKUP, BACKUP, RETENTION, REPLACED]),
        "error", "twice", "2 times in claims", 3,
    ),
    ("C5", "L1", put("states", 1, "confidence", to=0.33), "warning", "confidence", "0.33", 1),
    ("C5", "L1", put("states", 3, "confidence", to=0.7), "warning", "confidence", "falls", 3),
    ("C5", "L1", put("states", 1, "document", "host", to="x"), "error", "host", "a host at L1", 1),
    ("C5", "L3", put("states", 1, "document", "host", to=None), "error", "host", "no host", 1),
    (
        "C5", "L1", both(
            put("trajectory_type", to="gradual-drift"), put("states", 1, "action", to="reinforce"),
        ),
        "warning", "trajectory type", "gradual-drift with create, reinforce", None,
    ),
    ("C5", "L1", put("trajectory_type", to="stable"), "warning", "trajectory type", "stable", None),
    (
        "C5", "L1", put("trajectory_type", to="retraction"),
        "error", "retracted", "nothing is retracted", None,
    ),
    ("C5", "L1", put("retracted", to=[ENGINE]), "warning", "retracted", "1 retracted", None),
    ("C5", "L1", put("retracted", to=[BACKUP]), "error", "retracted", "yet a final claim", None),
    ("C5", "L1", put("retracted", to=["X."]), "error", "retracted", "yet never claimed", None),
    (
        "C5", "L1", put("expected_facts", 0, "claims", to=[BACKUP]),
        "error", "expected facts", "no expected fact holds", 3,
    ),
    (
        "C5", "L1", put("expected_facts", 1, "claims", to=[REPLACED, BACKUP]),
        "error", "expected facts", "2 expected facts hold", None,
    ),
    (
        "C5", "L1", put("expected_facts", 1, "claims", to=[REPLACED, ENGINE]),
        "error", "expected facts", "which is no final claim", None,
    ),
    ("C5", "L1", put("authors", 1, "name", to=CHATTY), "error", "authors", "2 authors are", None),
    ("C5", "L1", put("authors", 1, "name", to="Odo"), "error", "authors", "'Ruben Stoltz' is", 1),
    ("C5", "L1", put("authors", 1, "name", to="Odo"), "warning", "authors", "'Odo' wrote", None),
    (
        "C2", "L1", put("noise_documents", 0, "author", to="Odo"),
        "warning", "authors", "n1: 'Odo' is not among", None,
    ),
    (
        "C5", "L1", lambda made: made["authors"].pop(), "warning", "authors", "1 authors", None,
    ),
    (
        "C5", "L1", put("authors", 1, "style", to="Chatty,  with marvels"),
        "error", "styles", "have one style", None,
    ),
    ("C5", "L1", alike, "warning", "styles", "write alike", None),
    (
        "C6", "L1", put("expected_facts", 0, "authors", to=None),
        "error", "attribution", "no authors of the fact", None,
    ),
    (
        "C6", "L1", put("expected_facts", 0, "authors", to=[CHATTY]),
        "error", "attribution", f"{TERSE} says", None,
    ),
    (
        "C6", "L1", put("expected_facts", 1, "authors", to=[CHATTY, TERSE]),
        "error", "attribution", f"no document of {TERSE} says", None,
    ),
    (
        "C6", "L1", put("expected_facts", 1, "authors", to=[CHATTY, "Odo"]),
        "error", "attribution", "is not among the authors", None,
    ),
    (
        "C6", "L1", put("expected_facts", 1, "authors", to=[CHATTY, CHATTY]),
        "error", "attribution", "twice among the authors", None,
    ),
    (
        "C5", "L1", put("questions", 0, "claims", to=[ENGINE]),
        "error", "questions", "which is no final claim", None,
    ),
    ("C5", "L1", lambda made: made["questions"].pop(), "warning", "questions", "2 quest", None),
    (
        "C5", "L1", lambda made: made["questions"].append(dict(made["questions"][0])),
        "error", "questions", "2 times the question", None,
    ),
    (
        "C2", "L1", put("questions", 0, "question", to="How many days are orders kept?"),
        "warning", "questions", "stand in its claims", None,
    ),
    (
        "C5", "L1", put("questions", 0, "expected_answer", to="401 days."),
        "warning", "answers", "has 401", None,
    ),
    ("C5", "L1", other_claim("It keeps 400 days."), "error", "self-contained", "with 'It'", 1),
    (
        "C5", "L1", other_claim("Our order service keeps orders for 400 days."),
        "error", "self-contained", "with 'Our'", 1,
    ),
    (
        "C5", "L1", other_claim("The project keeps orders for 400 days."),
        "error", "self-contained", "which project", 1,
    ),
    (
        "C5", "L1", other_claim("Aldermere Bakeries keeps our orders for 400 days."),
        "error", "self-contained", "speaks for its author", 1,
    ),
    (
        "C5", "L1", other_claim("Orders are kept for 400 days."),
        "warning", "self-contained", "names nobody", 1,
    ),
    (
        "C5", "L1", other_claim("Aldermere Bakeries keeps orders. The orders stay 400 days."),
        "error", "atomic", "several sentences", 1,
    ),
    (
        "C5", "L1", other_claim("Aldermere Bakeries keeps orders; these stay for 400 days."),
        "error", "atomic", "semicolon", 1,
    ),
    (
        "C5", "L1",
        other_claim("Aldermere Bakeries is hosted at Ferrol and has 400 rows."),
        "error", "atomic", "'and has'", 1,
    ),
    (
        "C5", "L1",
        other_claim("Aldermere Bakeries keeps orders for 400 days and deletes drafts."),
        "warning", "atomic", "'and deletes'", 1,
    ),
    (
        "C5", "L1",
        other_claim("Aldermere Bakeries keeps orders for 400 days and the miller reads them."),
        "warning", "atomic", "and the miller reads", 1,
    ),
    (
        "C5", "L1",
        other_claim("Aldermere Bakeries keeps orders for 400 days, but not drafts."),
        "error", "atomic", "', but'", 1,
    ),
    ("C5", "L1", long_claim, "warning", "atomic", "more than 30", 0),
    ("C5", "L1", other_claim(RETENTION.replace("for ", "for  ")), "error", "claim", "blanks", 1),
    ("C5", "L1", longer, "error", "words", "at L1 has 200 to 400", 1),
    (
        "C2", "L1", put("noise_documents", 2, "text", to="Short."),
        "error", "words", "n3: 1 words", None,
    ),
    ("C5", "L1", without(1, "400"), "error", "numbers", "lacks 400", 1),
    (
        "C5", "L1", both(
            worded(RETENTION, RETENTION.replace("400 days", "400 days since 2024")),
            without(1, " since 2024"),
        ),
        "warning", "numbers", "lacks 2024", 1,
    ),
    ("C5", "L1", without(2, "CockroachDB"), "warning", "names", "the text lacks cockroachdb", 2),
    ("C5", "L1", without(2, "Aldermere Bakeries"), "warning", "names", "never names Alder", 2),
    (
        "C5", "L1", both(
            worded(RETENTION, RETENTION.replace("400 days", "400 days since October 2024")),
            without(1, " since October"),
        ),
        "warning", "names", "the text lacks month 10", 1,
    ),
    (
        "C5", "L1", both(
            put("states", 3, "claims", to=[REPLACED, BACKUP]),
            put("states", 3, "action", to="supersede"),
        ),
        "warning", "claims", "2 claims at the end", 3,
    ),
    (
        "C6", "L1", both(
            put("states", 3, "doc_claims", to=["Aldermere Bakeries stays as it is."]),
            put("expected_facts", 1, "authors", to=[CHATTY, TERSE]),
        ),
        "warning", "attribution", f"no document of {TERSE} says", None,
    ),
    (
        "C5", "L1", both(without(1, RETENTION), text(1, "Aldermere: 400.")),
        "warning", "stated", "two sentences hold", 1,
    ),
    (
        "C5", "L2", put("states", 1, "document", "noise_claims", to=[NOISE[0]]),
        "error", "noise claims", "1 noise claims, L2 has 2 to 3", 1,
    ),
    (
        "C5", "L2", put("states", 1, "document", "noise_claims", 1, to="Trams stop at midnight."),
        "error", "noise claims", "the text does not say 'Trams", 1,
    ),
    (
        "C5", "L2", put("states", 1, "document", "noise_claims", 1, to=RETENTION),
        "warning", "noise claims", "tells of", 1,
    ),
    (
        "C2", "L1",
        noise(0, "The order service stays backed up by 6 hours."),
        "error", "noise topic", "n1: tells of", None,
    ),
    (
        "C2", "L1",
        both(
            other_claim("The order service of Aldermere Bakeries keeps 400 red seals in a vault."),
            noise(0, "The vault of the mill has a seal of wax, 400 years old."),
        ),
        "warning", "noise topic", "n1: 400, seal, vault of", None,
    ),
    ("C5", "L1", text(1, "```"), "error", "scaffolding", "a code fence", 1),
    ("C5", "L1", lead(1, "Here is the email you wanted:"), "error", "scaffolding", "preamble", 1),
    ("C5", "L1", lead(1, "Sure, with pleasure."), "error", "scaffolding", "preamble", 1),
    ("C5", "L1", text(1, "I hope this helps!"), "error", "scaffolding", "closing offer", 1),
    ("C5", "L1", text(1, "Yours, [Your Name]"), "error", "scaffolding", "a placeholder", 1),
    ("C5", "L1", text(1, "Dear {{recipient}}"), "error", "scaffolding", "a placeholder", 1),
    ("C5", "L1", text(1, "As an AI I eat no cake."), "error", "scaffolding", "model speaking", 1),
    ("C5", "L1", text(1, "See doc_claims."), "error", "scaffolding", "word of the design", 1),
    ("C5", "L1", text(1, "**Gate**: green."), "warning", "scaffolding", "markup", 1),
    (
        "C2", "L1",
        noise(3, "```"),
        "error", "scaffolding", "n4: a code fence", None,
    ),
    ("C5", "L1", text(0, RETENTION), "error", "forward leakage", "tells a claim of state 1", 0),
    (
        "C5", "L1", text(0, "Aldermere Bakeries' order service always keeps orders 400 days."),
        "error", "forward leakage", "tells a claim of state 1", 0,
    ),
    (
        "C5", "L1", both(
            other_claim("The order service of Aldermere Bakeries purges invoices after 400 days."),
            text(0, "I wonder whether anybody purges 400 things."),
        ),
        "warning", "forward leakage", "400, purg of a claim of state 1", 0,
    ),
    ("C5", "L1", text(0, "Room 400 is locked."), "warning", "forward leakage", "holds 400", 0),
    (
        "C5", "L1", both(
            worded(REPLACED, "Aldermere Bakeries runs its order service on Okta."),
            text(1, "Okta was mentioned."),
        ),
        "warning", "forward leakage", "holds okta", 1,
    ),
    (
        "C5", "L1", text(1, "Somebody spoke of CockroachDB."),
        "warning", "forward leakage", "holds cockroachdb", 1,
    ),
    (
        "C2", "L1",
        noise(1, "Luncheon talk by CockroachDB."),
        "warning", "forward leakage", "n2: holds cockroachdb", None,
    ),
]  # fmt: skip


def found(made: dict[str, Any]) -> list[Problem]:
    return check_trajectory(trajectory(made))


@pytest.mark.parametrize(
    ("category", "level", "change", "severity", "rule", "part", "state"), SINGLE
)
def test_a_planted_fault_is_found(
    category: str,
    level: str,
    change: Change,
    severity: str,
    rule: str,
    part: str,
    state: int | None,
) -> None:
    made = raw(category, level)
    change(made)
    hits = [p for p in found(made) if p.rule == rule and part in p.message]
    assert hits, [(p.rule, p.message) for p in found(made)]
    assert (hits[0].severity, hits[0].state) == (severity, state)
    assert hits[0].fix


def conflict(made: dict[str, Any]) -> None:
    for i in (2, 3):
        made["states"][i]["claims"].append(ENGINE)
    made["states"][2]["action"] = "conflict"
    made["expected_facts"].append({"claims": [ENGINE]})
    made["trajectory_type"] = "contradiction"


def retraction(made: dict[str, Any]) -> None:
    made["retracted"] = [ENGINE]
    made["trajectory_type"] = "retraction"


def withdrawn(made: dict[str, Any]) -> None:
    """A retraction that an update brings along."""
    retraction(made)
    made["states"][2]["action"] = "update"


UNTOUCHED: list[tuple[str, str, Change]] = [
    ("C5", "L1", put("trajectory_type", to="contradiction")),
    ("C5", "L1", conflict),
    ("C5", "L1", retraction),
    ("C5", "L1", withdrawn),
    ("C5", "L1", text(1, "Sept. 3rd is a holiday.")),
    ("C5", "L1", without(1, "keeps orders for")),
    ("C5", "L1", text(1, "Orders from 2023 fill 12,400 pages, at 16:05 the bell rings.")),
    ("C5", "L1", text(0, "The order of the day is bread.")),
    ("C5", "L1", text(0, "Our language model of the mill is made of wood.")),
    ("C5", "L1", text(0, "The list [see the board] is long.")),
    ("C5", "L1", other_claim("Aldermere Bakeries keeps orders and invoices for 400 days.")),
    ("C5", "L1", other_claim("Orders and invoices of Aldermere Bakeries stay for 400 days.")),
    ("C5", "L1", other_claim("The service desk of Aldermere Bakeries keeps orders for 400 days.")),
    ("C5", "L1", other_claim("Aldermere Bakeries, St. Ives, keeps orders for 400 days.")),
    ("C6", "L1", put("expected_facts", 1, "authors", to=[CHATTY])),
]


@pytest.mark.parametrize(("category", "level", "change"), UNTOUCHED)
def test_what_is_no_fault_is_left_alone(category: str, level: str, change: Change) -> None:
    made = raw(category, level)
    change(made)
    assert found(made) == []
