"""A run's published figures corrected: what the records show to be wrong, and what stands.

`corrections` needs nothing but the stored records and asks no model. A correction
that does not apply to a run is said to, with what was looked at.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from memprobe import metrics
from storage.catalog import connect
from storage.runs import RunStore
from tasks import corrections_evidence as evidence
from tasks.corrections_evidence import (
    EMPTY,
    SOUND,
    Mode,
    Quoting,
    Refused,
    Replies,
    Scores,
    Sizes,
)
from tasks.corrections_figures import (
    NOT_RANKED,
    REVERSED,
    SHOWN,
    UNSHOWN,
    Figure,
    Ranking,
    Rate,
    figures,
    rankings,
    rates,
    read_name,
)
from tasks.paper_figures import RunValues
from tasks.score import BASE, ModeScores, mode_scores

APPLIES, IDLE, UNTOLD = "applies", "does not apply", "cannot be told"


@dataclass(frozen=True, slots=True)
class Note:
    """One correction in a line: whether it applies, why, under which assumption, with its n."""

    id: str
    state: str
    says: str
    assumption: str = ""
    n: str = ""

    @property
    def line(self) -> str:
        """The note as it is printed."""
        parts = [f"{self.id} ({self.state}): {self.says}"]
        parts += [f"Assumption: {self.assumption}"] if self.assumption else []
        parts += [f"n: {self.n}."] if self.n else []
        return " ".join(parts)


@dataclass(frozen=True, slots=True)
class Corrections:
    """All corrections of one run and layer: why, and the figures and facts behind it.

    `strict` has the scores of measured verdicts alone; tables of all of it are made
    by `tasks.report.corrected`.
    """

    run: str
    layer: str
    seed: int
    notes: tuple[Note, ...]
    figures: tuple[Figure, ...]
    rates: tuple[Rate, ...]
    rankings: tuple[Ranking, ...]
    strict: Mapping[Mode, ModeScores]
    quotes: tuple[Quoting, ...]
    unmeasured: tuple[evidence.Unmeasured, ...]
    refused: tuple[Refused, ...]
    replies: tuple[Replies, ...]
    scores: tuple[Scores, ...]


def corrections(store: RunStore, layer: str = BASE) -> Corrections:
    """Compute every correction of a run; seconds for 50 users, without a call."""
    manifest = store.manifest
    seed, threshold = manifest.config.seed, manifest.config.coverage_threshold
    with connect(store, evidence.TABLES) as connection:
        values = RunValues(store, connection, layer)
        evidence.stricten(connection)
        quotes = evidence.quoting(connection, manifest, layer)
        blamed = evidence.blame(connection, layer)
        labelled = evidence.labels(connection, layer)
        gone = evidence.unmeasured(connection, layer)
        sizes = evidence.overflow(connection, layer)
        refused = evidence.refused(connection, layer)
        kept = evidence.replies(connection)
        scored = evidence.retrieval_scores(connection, layer)
        connection.execute("SET search_path = 'strict,main'")
        strict = {(s.system, s.access_mode, s.k): s for s in mode_scores(connection, layer)}
    found = figures(values, strict, threshold)
    rated = rates(labelled, blamed, quotes)
    ranked = rankings(found, rated, seed)
    notes = (
        _transcripts(quotes, rated),
        _overflow(sizes, gone, found, labelled),
        _errors(gone),
        _coverage(found, threshold),
        _oracle(*refused),
        _replies(kept),
        _scores(scored),
        _rankings(ranked),
    )
    return Corrections(
        run=store.name,
        layer=layer,
        seed=seed,
        notes=notes,
        figures=tuple(found),
        rates=tuple(rated),
        rankings=tuple(ranked),
        strict=strict,
        quotes=tuple(quotes),
        unmeasured=tuple(gone),
        refused=tuple(refused[2]),
        replies=tuple(kept),
        scores=tuple(scored),
    )


def _listed(names: Sequence[str]) -> str:
    return ", ".join(dict.fromkeys(names))


def _transcripts(quotes: Sequence[Quoting], rated: Sequence[Rate]) -> Note:
    name = "transcripts"
    found_by = (
        f"(evidence quotes when {evidence.QUOTE_WORDS} words in a row are in a reply of the "
        "user and not in the task)"
    )

    def counted(some: Sequence[Quoting]) -> str:
        return f"{sum(q.quoted for q in some):,} of {sum(q.disclosed for q in some):,}"

    empty = [q for q in quotes if q.transcript == EMPTY]
    sound = [q for q in quotes if q.transcript == SOUND]
    if not quotes:
        return Note(name, IDLE, "no attribution went as far as a transcript.")
    if not empty:
        state = IDLE if len(sound) == len(quotes) else UNTOLD
        doubt = [f"{q.mode[0]}, {read_name(*q.mode[1:])}" for q in quotes if q not in sound]
        says = f'{counted(sound)} "disclosed" verdicts quote the transcript {found_by}.'
        if doubt:
            says += (
                f" Too little evidence to tell of {_listed(doubt)}: "
                f"{counted([q for q in quotes if q not in sound])} quote it."
            )
        return Note(name, state, says)
    rows = _listed([f"{q.mode[0]} {read_name(*q.mode[1:])}" for q in empty])
    beside = f", {counted(sound)} do in the other rows" if sound else ""
    marked = " The records say so as well." if all(q.marked for q in empty) else ""
    estimated = [r for r in rated if r.estimated]
    targets = sum(sum(r.printed_labels.values()) for r in estimated)
    users = len({user for r in estimated for user in r.printed})
    left_out = sum(r.left_out for r in estimated)
    return Note(
        name,
        APPLIES,
        f'{rows} were attributed on empty transcripts: {counted(empty)} "disclosed" verdicts '
        f"quote the transcript{beside} {found_by}.{marked} Memory, Agent, User and the recovery "
        "rate of these rows are invalid; Recovered and Task stand.",
        "a target is disclosed if the whole store gave it back, or if the whole-store row judged "
        "it disclosed on the same episode's transcript.",
        f"{targets:,} targets of {users} users, {left_out:,} of them left out as nothing tells",
    )


def _mean_on(figure: Figure, users: Sequence[str]) -> float | None:
    return metrics.mean([figure.corrected[u] for u in users if u in figure.corrected])


def _overflow(
    sizes: Sequence[Sizes],
    gone: Sequence[evidence.Unmeasured],
    found: Sequence[Figure],
    labelled: Sequence[evidence.Labelled],
) -> Note:
    name = "overflow"
    rows = [g for g in gone if g.reason == "store_overflow" and g.mode[1] == "dump_all"]
    if not rows:
        return Note(name, IDLE, "no verdict has the reason store_overflow.")
    says = []
    for row in rows:
        system = row.mode[0]
        how = (
            f"{row.scored:,} of them scored 0 all the same"
            if row.scored
            else "already unscored, so nothing changes"
        )
        blank = f", {row.blank:,} with the label unknown and no reason" if row.blank else ""
        says.append(
            f"{system}: {row.n:,} verdicts of {row.users} users have the reason "
            f"store_overflow{blank}; {how}."
        )
        blamed = sum(
            one.unmeasured
            for one in labelled
            if one.mode == row.mode and one.label == "memory_failure"
        )
        if blamed:
            says.append(f"{blamed:,} of them were labelled memory_failure.")
        size = next((s for s in sizes if s.system == system), None)
        if size is not None:
            says.append(_fitting(size, found))
    return Note(
        name,
        APPLIES,
        " ".join(says),
        "what was never measured is left out, not 0. Users whose stores fit are those with the "
        "smallest stores, so compare systems on the same users only.",
        "; ".join(f"{row.mode[0]} {row.n:,} targets, {row.users} users" for row in rows),
    )


def _fitting(size: Sizes, found: Sequence[Figure]) -> str:
    whole = {f.system: f for f in found if f.mode and f.mode[1] == "dump_all"}
    own = _mean_on(whole[size.system], size.fits) if size.system in whole else None
    users = "user whose store fits" if len(size.fits) == 1 else "users whose stores fit"
    says = f"B on the {len(size.fits)} {users}: "
    says += "none" if own is None else f"{own:.3f}"
    others = {s: _mean_on(f, size.fits) for s, f in whole.items() if s != size.system}
    beside = [f"{s} {b:.3f}" for s, b in others.items() if b is not None]
    says += f" (on the same users {', '.join(beside)})." if beside else "."
    if size.largest_fit is not None and size.smallest_fail is not None:
        says += (
            f" Largest store that fits {size.largest_fit:,} characters, smallest that fails "
            f"{size.smallest_fail:,} (its items as JSON, indented by 2)."
        )
    return says


def _errors(gone: Sequence[evidence.Unmeasured]) -> Note:
    rows = [g for g in gone if g.reason != "store_overflow" and g.scored]
    if not rows:
        return Note("errors", IDLE, "no other failure was scored 0.")
    named = [
        f"{g.mode[0]} {read_name(*g.mode[1:])} {g.scored:,} {g.reason}" for g in rows
    ]  # fmt: skip
    return Note(
        "errors",
        APPLIES,
        f"failures were scored 0: {_listed(named)}. They are left out.",
        "an error is no measurement.",
        f"{sum(g.scored for g in rows):,} verdicts",
    )


def _coverage(found: Sequence[Figure], threshold: float) -> Note:
    low = [f"{f.system} {f.name[3:]} {f.refused}" for f in found if f.refused]
    if not low:
        return Note("coverage", IDLE, f"every row has {threshold:.0%} or more of its targets.")
    return Note(
        "coverage",
        APPLIES,
        f"rows under the threshold of {threshold:.0%} are not ranked: {_listed(low)}.",
    )


def _oracle(no: int, judged: int, rows: Sequence[Refused]) -> Note:
    name = "oracle"
    some = [r for r in rows if r.recovered]
    if not some:
        return Note(
            name, IDLE, f"the oracle refused {no:,} of {judged:,} targets; none was recovered."
        )
    named = [f"{r.mode[0]} {read_name(*r.mode[1:])} {r.recovered}/{r.refused}" for r in some]
    return Note(
        name,
        APPLIES,
        f"the oracle said of {no:,} of {judged:,} targets that their task cannot invite them; "
        f"recovered all the same: {_listed(named)}.",
        "what was recovered had been invited, so the oracle errs at least there; Task counts only "
        "what was not recovered, and is an upper bound.",
        f"{no:,} refused targets",
    )


def _replies(kept: Sequence[Replies]) -> Note:
    name = "replies"
    losing = [r for r in kept if r.loses_last]
    if not losing:
        return Note(name, IDLE, "no system that stores replies misses those that end an episode.")
    named = [
        f"{r.system} misses the last reply of {r.last - r.last_kept:,} of {r.last:,} episodes and "
        f"has {r.earlier_kept:,} of {r.earlier:,} earlier ones"
        for r in losing
    ]
    return Note(
        name,
        APPLIES,
        f"{_listed(named)}. What such a reply held cannot be recovered.",
        "a reply is kept if an item is it, word for word; figures are not changed.",
        f"{sum(r.last - r.last_kept for r in losing):,} replies",
    )


_KINDS = {
    "ascending": "ascends from the best item (a distance)",
    "descending": "descends from the best item (a similarity)",
    "none": "is missing",
    "mixed": "follows no order",
    "constant": "is the same throughout",
}


def _scores(found: Sequence[Scores]) -> Note:
    name = "scores"
    short = [f"{s.system} {s.short:,}/{s.asked:,}" for s in found if s.short]
    few = f" Fewer than k items were returned: {_listed(short)}." if short else ""
    if len(found) < 2:
        return Note(name, IDLE, f"fewer than two systems retrieve.{few}")
    if len({s.kind for s in found}) == 1 and found[0].kind in ("ascending", "descending"):
        return Note(name, IDLE, f"all scores {found[0].kind[:-3]}; scales may differ.{few}")
    named = [
        f"{s.system} {_KINDS[s.kind]}"
        + ("" if s.low is None else f", {s.low:.3f} to {s.high:.3f}, n {s.scored:,}")
        for s in found
    ]
    return Note(
        name,
        APPLIES,
        f"the score of a retrieved item cannot be compared between systems: "
        f"{'; '.join(named)}.{few}",
        "ranks within a system stand; a cut or a mean over systems has no meaning.",
    )


def _rankings(ranked: Sequence[Ranking]) -> Note:
    total = sum(len(r.pairs) for r in ranked)
    if not total:
        return Note("rankings", IDLE, "there are no two systems to order.")
    counts = {
        result: sum(len(r.having(result)) for r in ranked)
        for result in (SHOWN, UNSHOWN, REVERSED, NOT_RANKED)
    }
    named = ", ".join(f"{n} {result}" for result, n in counts.items())
    return Note(
        "rankings",
        APPLIES,
        f"of {total} published orders of two systems: {named}.",
        "users are resampled with both systems' values; p is Holm-corrected over the pairs of a "
        "figure; a difference that is not shown is not equality.",
        f"{total} pairs",
    )
