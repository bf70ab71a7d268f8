"""Checks of an episode's texts: values in their places, update phrases, label words."""

from __future__ import annotations

from memprobe.leakage import content_stems
from memprobe.paradigms.mentions import labels, mentions, position, update_phrases
from memprobe.paradigms.problems import Findings, Problem
from memprobe.paradigms.spec import Condition, Episode, Session, SessionType, Spec

MANY = 3
"""New-value mentions in one session after which a session gets a look."""
TOLD = 0.3
"""Share of the gold trigger's content words that the perturbation must tell."""


def _named(
    value: str,
    session: Session,
    out: Findings,
    i: int,
    *,
    roles: tuple[str, ...] = (),
    what: str,
    soft: bool = False,
) -> None:
    if not mentions(value, session.text(*roles)):
        by = f" by {' or '.join(roles)}" if roles else ""
        report = out.warn if soft else out.error
        report("missing value", f"{what} {value!r} is not named{by}", "name it verbatim", i)


def _absent(
    value: str, session: Session, out: Findings, i: int, *, what: str, soft: bool = False
) -> None:
    text = session.text()
    where = session.session_type
    if mentions(value, text):
        report = out.warn if soft else out.error
        report("misplaced value", f"{what} {value!r} is named in {where}", "leave it out", i)
    elif not soft and mentions(value, text, exact=False):
        message = f"{what} {value!r} stands in {where} in another spelling"
        out.warn("misplaced value", message, "choose another word", i)


def _values(spec: Spec, i: int, session: Session, out: Findings) -> None:
    old, new = spec.initial_value, spec.new_value
    match session.session_type:
        case SessionType.ENCODING:
            _named(old, session, out, i, roles=("user", "tool_output"), what="the initial value")
            _absent(new, session, out, i, what="the new value")
            return
        case SessionType.WEAKLY_RELATED:
            _absent(new, session, out, i, what="the new value")
            _absent(old, session, out, i, what="the initial value")
            for value in spec.distractor_values:
                _absent(value, session, out, i, what="the distractor", soft=True)
        case SessionType.NEAR_MISS:
            _absent(new, session, out, i, what="the new value")
            _absent(old, session, out, i, what="the initial value", soft=True)
            if not any(mentions(v, session.text()) for v in spec.distractor_values):
                message = "no distractor value is named"
                out.error("missing value", message, "use one of the distractor values", i)
        case SessionType.CONFUSABLE:
            # The word itself in another role: a surname, a day, a street. Any case will do.
            if not mentions(new, session.text(), exact=False):
                message = f"the new value {new!r} is not named"
                out.error("missing value", message, "use it in an irrelevant role", i)
            _absent(old, session, out, i, what="the initial value", soft=True)
        case SessionType.DECOY:
            _named(new, session, out, i, what="the new value")
            _named(old, session, out, i, what="the initial value", soft=True)
        case SessionType.STALE_REFERENCE:
            _named(old, session, out, i, what="the initial value")
            _absent(new, session, out, i, what="the new value", soft=True)
        case SessionType.P1:
            _absent(new, session, out, i, what="the new value")
            if spec.perturbation.reactivation:
                _named(old, session, out, i, what="the initial value, to be recalled,", soft=True)
        case SessionType.PERTURBATION | SessionType.P2:
            _perturbation(spec, i, session, out)
        case SessionType.GENERIC:
            for value in (old, new, *spec.distractor_values):
                _absent(value, session, out, i, what="the value")
    n = mentions(new, session.text())
    if n > MANY:
        message = f"the new value {new!r} is named {n} times"
        out.warn("mentions", message, f"{MANY} times at most reads less planted", i)


_SAYS: dict[Condition, tuple[str, ...]] = {
    Condition.ASSISTANT_NOISE: ("assistant",),
    Condition.STALE_TOOL: ("tool_output", "user"),
}


def _perturbation(spec: Spec, i: int, session: Session, out: Findings) -> None:
    roles = ("user",) if spec.updates else _SAYS.get(spec.condition, ("user", "tool_output"))
    _named(spec.new_value, session, out, i, roles=roles, what="the new value")
    if session.session_type is SessionType.P2:
        return
    text = session.text()
    old, new = position(spec.initial_value, text), position(spec.new_value, text)
    if new is None:
        return
    if spec.perturbation.reactivation and (old is None or old > new):
        message = f"{spec.initial_value!r} is not recalled before {spec.new_value!r}"
        out.error("reactivation", message, "recall the old value and its context first", i)
    direct = (Condition.DIRECT, Condition.DIRECT_WEAK)
    if spec.condition in direct and old is not None and old < new:
        message = f"{spec.initial_value!r} is named before {spec.new_value!r}"
        out.warn("reactivation", message, "a direct perturbation recalls nothing", i)


def _trigger(episode: Episode, out: Findings) -> None:
    spec = episode.spec
    if not spec.updates or spec.gold.temporal is None:
        return
    told: set[str] = set()
    marks = [
        i
        for i, s in enumerate(episode.sessions)
        if s.session_type in (SessionType.PERTURBATION, SessionType.P1)
    ]
    if not marks:
        return
    for i in marks:
        told |= content_stems(episode.sessions[i].text())
    own = content_stems(f"{spec.initial_value} {spec.new_value} user")
    wanted = content_stems(spec.gold.temporal.trigger) - own
    if wanted and len(wanted & told) < TOLD * len(wanted):
        lacking = ", ".join(sorted(wanted - told))
        message = f"the perturbation tells little of the gold trigger (not: {lacking})"
        out.warn("trigger", message, "tell the trigger, or word the gold as it is told", marks[0])


def _accidental(spec: Spec, i: int, session: Session, out: Findings) -> None:
    if spec.updates:
        return
    for sentence in update_phrases(spec.new_value, session.text()):
        report = out.error if session.session_type.perturbs else out.warn
        message = f"an update phrase near the new value: {sentence[:90]!r}"
        report("accidental update", message, "negate it or say it otherwise", i)


def _labels(i: int, session: Session, out: Findings) -> None:
    names, words = labels(session.text())
    for name in names:
        message = f"the text holds the label {name!r}"
        out.error("label", message, "nothing in a text tells what a session is for", i)
    for word in words:
        message = f"the text holds {word!r}, a word of the design"
        out.warn("label", message, "use another word if it tells the session's part", i)


def _questions(episode: Episode, out: Findings) -> None:
    for probe in episode.probes:
        for name in labels(probe.question)[0]:
            message = f"the question of {probe.probe_type} holds the label {name!r}"
            out.error("label", message, "ask in natural words")


def check_session(spec: Spec, index: int, session: Session) -> list[Problem]:
    """Problems of one session's text."""
    out = Findings(spec.episode_id)
    _values(spec, index, session, out)
    _accidental(spec, index, session, out)
    _labels(index, session, out)
    return out.problems


def check(episode: Episode) -> list[Problem]:
    """Problems of the texts."""
    out = Findings(episode.id)
    for i, session in enumerate(episode.sessions):
        out.problems += check_session(episode.spec, i, session)
    _trigger(episode, out)
    _questions(episode, out)
    return out.problems
