"""Checks of an episode's design: fields, gold, counts and order of sessions, times, probes."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from itertools import combinations, pairwise

from memprobe.paradigms.mentions import mentions
from memprobe.paradigms.problems import Findings, Problem
from memprobe.paradigms.protocol import (
    INTERLEAVED,
    POST_FILLERS,
    POST_TYPES,
    RULES,
    TIERS,
    USER_TURNS,
    filler_counts,
    spec_probes,
)
from memprobe.paradigms.spec import (
    Condition,
    Domain,
    Episode,
    ProbeType,
    Session,
    SessionType,
    Spec,
)

SPAN = (timedelta(weeks=3), timedelta(weeks=9))
WAKING = range(5, 24)
# Whether a domain of one's own has tools is its author's to say.
_WITHOUT_TOOLS = (Domain.PERSONAL, Domain.WORK)


def _fields(spec: Spec, out: Findings) -> None:
    rule = RULES[spec.condition]
    table = "follow the table of conditions"
    for field, is_, should in (
        ("paradigm", spec.paradigm, rule.paradigm),
        ("expected_behavior", spec.expected_behavior, rule.expected),
        ("perturbation.source_type", spec.perturbation.source_type, rule.perturbation.source_type),
        (
            "perturbation.evidence_strength",
            spec.perturbation.evidence_strength,
            rule.perturbation.evidence_strength,
        ),
        (
            "perturbation.authoritative",
            spec.perturbation.authoritative,
            rule.perturbation.authoritative,
        ),
        (
            "perturbation.reactivation",
            spec.perturbation.reactivation,
            rule.perturbation.reactivation,
        ),
    ):
        if is_ != should:
            out.error("spec", f"{field} is {is_}, {spec.condition} has {should}", table)
    if spec.split and not spec.updates:
        out.error("spec", "a split episode preserves", "only updates are split")
    values = (spec.initial_value, spec.new_value, *spec.distractor_values)
    for a, b in combinations(values, 2):
        if a.casefold() in b.casefold() or b.casefold() in a.casefold():
            fix = "choose values that do not contain each other"
            out.error("overlap", f"values {a!r} and {b!r} overlap", fix)


def _gold(spec: Spec, out: Findings) -> None:
    gold = spec.gold
    new, old = spec.new_value, spec.initial_value
    expected: dict[str, object] = (
        {"current_value": new, "previous_value": old, "has_changed": True}
        if spec.updates
        else {
            "current_value": old,
            "previous_value": None,
            "has_changed": False,
            "source_of_change": None,
        }
    )
    for field, should in expected.items():
        if (is_ := getattr(gold, field)) != should:
            out.error("gold", f"gold.{field} is {is_!r}, it must be {should!r}", "correct it")
    needed = ("source_of_change", "temporal") if spec.updates else ("conflict",)
    for field in needed:
        if getattr(gold, field) is None:
            out.error("gold", f"gold.{field} is missing", "fill it in")
    extra = "conflict" if spec.updates else "temporal"
    if getattr(gold, extra) is not None:
        out.error("gold", f"gold.{extra} in an episode that {spec.expected_behavior}", "set null")
    if gold.conflict is None or spec.updates:
        return
    rule = RULES[spec.condition]
    for field, is_, should in (
        ("value", gold.conflict.value, new),
        ("source", gold.conflict.source, rule.perturbation.source_type),
        ("status", gold.conflict.status, rule.status),
    ):
        if is_ != should:
            out.error("gold", f"gold.conflict.{field} is {is_}, it must be {should}", "correct it")


def _order(episode: Episode, out: Findings) -> None:
    spec, types = episode.spec, [s.session_type for s in episode.sessions]
    count = Counter(types)
    marks = [i for i, t in enumerate(types) if t.perturbs]
    wanted = [SessionType.P1, SessionType.P2] if spec.split else [SessionType.PERTURBATION]
    encodings = RULES[spec.condition].encodings
    if count[SessionType.ENCODING] != encodings:
        out.error(
            "count",
            f"{count[SessionType.ENCODING]} encodings, {spec.condition} has {encodings}",
            "add or take out encodings",
        )
    if [types[i] for i in marks] != wanted:
        found = [str(types[i]) for i in marks]
        fix = f"exactly {' then '.join(wanted)}"
        out.error("count", f"perturbation sessions are {found}", fix)
        return
    lead = types[: count[SessionType.ENCODING]]
    if any(t is not SessionType.ENCODING for t in lead):
        late = max(i for i, t in enumerate(types) if t is SessionType.ENCODING)
        out.error("order", "an encoding stands after a filler", "put encodings first", late)
    before = Counter(t for t in types[: marks[0]] if t.filler)
    lengths = {n: tier for tier, n in TIERS.items()}
    fillers = filler_counts(lengths.get(before.total(), "core"))
    for kind, n in fillers.items():
        if before[kind] != n:
            fix = f"exactly {n} before the perturbation"
            out.error("count", f"{before[kind]} {kind} before the perturbation", fix)
    for kind in set(before) - set(fillers):
        out.error("count", f"{before[kind]} {kind} before the perturbation", "move it after")
    if spec.split:
        _between(types, marks, out)
    after = types[marks[-1] + 1 :]
    low, high = POST_FILLERS
    if not low <= len(after) <= high:
        out.error("count", f"{len(after)} sessions after the perturbation", f"{low} to {high}")
    for i, kind in enumerate(after, marks[-1] + 1):
        if kind not in POST_TYPES and kind is not SessionType.ENCODING:
            out.error("order", f"{kind} after the perturbation", "use another kind there", i)
    stale = after.count(SessionType.STALE_REFERENCE)
    if stale > (1 if spec.updates else 0):
        out.error("count", f"{stale} stale references", "at most one, in updates only")


def _between(types: list[SessionType], marks: list[int], out: Findings) -> None:
    between = types[marks[0] + 1 : marks[1]]
    low, high = INTERLEAVED
    if not low <= len(between) <= high or not all(t.filler for t in between):
        fix = f"{low} to {high} fillers"
        out.error("count", f"{len(between)} sessions between p1 and p2", fix, marks[0])


def _times(episode: Episode, out: Findings) -> None:
    times = [s.time for s in episode.sessions]
    for i, (a, b) in enumerate(pairwise(times), 1):
        if b <= a:
            out.error("time", f"{b.isoformat()} is not after {a.isoformat()}", "times rise", i)
    for i, moment in enumerate(times):
        if moment.hour not in WAKING:
            out.warn("time", f"{moment:%H:%M} is no hour to chat", "choose a waking hour", i)
    span = times[-1] - times[0]
    if not SPAN[0] <= span <= SPAN[1] + timedelta(days=1):
        out.warn("time", f"sessions span {span.days} days", "3 to 9 weeks")


def _turns(spec: Spec, i: int, session: Session, out: Findings) -> None:
    roles = [t.role for t in session.dialogue]
    spoken = [r for r in roles if r != "tool_output"]
    if not spoken or spoken[0] != "user" or roles[0] != "user":
        out.error("roles", "the first message is not the user's", "let the user begin", i)
    for a, b in pairwise(spoken):
        if a == b:
            out.error("roles", f"two {a} messages in a row", "alternate user and assistant", i)
            break
    if roles[-1] != "assistant":
        out.warn("roles", f"the last message is of {roles[-1]}", "let the assistant answer", i)
    tools = spec.domain not in _WITHOUT_TOOLS or (
        spec.condition is Condition.STALE_TOOL and session.session_type.perturbs
    )
    if "tool_output" in roles and not tools:
        out.error("roles", f"tool_output in a {spec.domain} episode", "tools are agentic", i)
    if any(not t.content.strip() for t in session.dialogue):
        out.error("roles", "an empty message", "write or remove it", i)
    bounds = USER_TURNS.get(session.session_type)
    n = roles.count("user")
    if bounds and not bounds[0] <= n <= bounds[1]:
        fix = f"{bounds[0]} to {bounds[1]}"
        out.error("turns", f"{n} user messages in a {session.session_type}", fix, i)


def _probes(episode: Episode, out: Findings) -> None:
    spec = episode.spec
    order, found = spec_probes(spec), [p.probe_type for p in episode.probes]
    missing = [p for p in order if p not in found]
    for name in missing:
        out.error("probes", f"missing probe {name}", "write it")
    if not missing and tuple(found) != order:
        out.error("probes", f"probes are {', '.join(found)}", f"in order: {', '.join(order)}")
    questions = Counter(p.question.casefold().strip() for p in episode.probes)
    if any(n > 1 for n in questions.values()):
        out.error("probes", "a question occurs twice", "ask each in its own words")
    for probe in episode.probes:
        name = probe.probe_type
        if probe.expected_behavior != spec.expected_behavior:
            out.error("probes", f"{name}: expected_behavior differs from the spec's", "correct it")
        # A probe on the conflict has to name the value it asks about; others would give it away.
        names_new = not spec.updates and name in (ProbeType.CONFLICT, ProbeType.SOURCE)
        for value in (spec.initial_value, spec.new_value, *spec.distractor_values):
            named = mentions(value, probe.question, exact=False)
            if named and not (names_new and value == spec.new_value):
                out.error("probes", f"{name}: the question names {value!r}", "ask without it")
        if names_new and not mentions(spec.new_value, probe.question):
            out.error("probes", f"{name}: the question does not name {spec.new_value!r}", "name it")
        _answer(spec, name, probe.gold_answer, out)


def _answer(spec: Spec, name: ProbeType, answer: str, out: Findings) -> None:
    gold = spec.gold
    must: list[str] = []
    exact = {ProbeType.CURRENT: gold.current_value, ProbeType.PREVIOUS: gold.previous_value}
    if name in exact:
        if answer != exact[name]:
            out.error("gold", f"{name}: gold_answer is {answer!r}, not {exact[name]!r}", "correct")
        return
    if name is ProbeType.CHANGE:
        start = "Yes" if gold.has_changed else "No"
        if not answer.startswith(f"{start} "):
            out.error("gold", f"change: gold_answer does not begin with {start}", "correct it")
        must = [spec.initial_value] + ([spec.new_value] if spec.updates else [])
    elif name is ProbeType.CONFLICT:
        if not answer.startswith("Yes "):
            out.error("gold", "conflict_value: gold_answer does not begin with Yes", "correct it")
        must = [spec.initial_value, spec.new_value]
    elif name is ProbeType.TEMPORAL:
        must = [spec.initial_value, spec.new_value]
        if gold.temporal is not None:
            for part in (gold.temporal.trigger, gold.temporal.reason):
                if part.casefold().rstrip(".") not in answer.casefold():
                    fix = "Trigger and Reason of gold.temporal, word for word"
                    out.warn("gold", f"temporal: gold_answer lacks {part!r}", fix)
    for value in must:
        if not mentions(value, answer):
            out.error("gold", f"{name}: gold_answer does not name {value!r}", "name it")


def check_session(spec: Spec, index: int, session: Session) -> list[Problem]:
    """Problems of one session's messages: who speaks, in turn, how often."""
    out = Findings(spec.episode_id)
    _turns(spec, index, session, out)
    return out.problems


def check(episode: Episode) -> list[Problem]:
    """Problems of the design."""
    out = Findings(episode.id)
    _fields(episode.spec, out)
    _gold(episode.spec, out)
    _order(episode, out)
    _times(episode, out)
    for i, session in enumerate(episode.sessions):
        _turns(episode.spec, i, session, out)
    _probes(episode, out)
    return out.problems
