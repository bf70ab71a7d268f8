"""What a run's records tell about its own measurement: the facts that corrections stand on.

Each function asks the artifacts one thing and knows nothing of a system's name:
a fault is found by the trace that it leaves, so that other runs are held to the
same tests.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from memprobe.types import AccessMode, Protocol
from storage.manifest import Manifest

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

TABLES = (
    *("verdicts", "targets", "attributions", "episodes", "turns", "preference_scores"),
    *("turn_scores", "memory_items", "retrievals", "slot_fills", "oracle_verdicts"),
    *("import_issues", "footprints"),
)

QUOTE_WORDS = 4
"""A shared run of this many words is a quotation; shorter ones meet by chance."""
MIN_DISCLOSED = 5
"""Below this many verdicts nothing is said of how they were made."""
QUOTED_AT_MOST = 0.01
"""The share of quoting evidence up to which a transcript counts as never read."""
QUOTED_AT_LEAST = 0.5
"""The share from which on verdicts were plainly made on the transcripts."""
KEPT_AT_LEAST = 0.5
"""The share of earlier replies that a store must hold before a missing last one tells anything."""

Mode = tuple[str, str, int | None]
"""System, access mode, k."""

EMPTY, SOUND, UNKNOWN = "empty", "sound", "unknown"


@dataclass(frozen=True, slots=True)
class Quoting:
    """How many "disclosed" verdicts of one row quote a reply of the user.

    `marked` tells that the records themselves say that the transcript was empty.
    """

    mode: Mode
    quoted: int
    disclosed: int
    judged: int
    marked: bool

    @property
    def transcript(self) -> str:
        """`empty`, `sound` or `unknown`: what the verdicts were judged on."""
        if self.disclosed < MIN_DISCLOSED:
            return EMPTY if self.marked and not self.quoted else UNKNOWN
        share = self.quoted / self.disclosed
        if share <= QUOTED_AT_MOST:
            return EMPTY
        return SOUND if share >= QUOTED_AT_LEAST else UNKNOWN


# Evidence strings several quotations together; each is looked for on its own. Words that the
# task already has prove nothing: who saw no dialogue quotes the task.
_QUOTING = rf"""
WITH judged AS (
    SELECT system, access_mode, k, user_id, epoch, episode, category, dimension, disclosed,
           evidence, coalesce(detail LIKE '%empty transcript%', false) AS marked
    FROM attributions WHERE layer = ? AND disclosed IS NOT NULL
),
said AS (
    SELECT t.system, t.user_id, t.epoch, t.episode,
           plain(string_agg(coalesce(t.user_text, ''), ' ' ORDER BY t.turn)) AS reply
    FROM turns t SEMI JOIN judged j USING (system, user_id, epoch, episode)
    GROUP BY ALL
),
pieces AS (
    SELECT *, unnest(string_split_regex(evidence, '["“”„«»…/;|]|\.\.\.')) AS piece
    FROM judged WHERE disclosed AND evidence IS NOT NULL
),
held AS (
    SELECT DISTINCT p.system, p.access_mode, p.k, p.user_id, p.epoch, p.category, p.dimension
    FROM (SELECT * REPLACE (plain(piece) AS piece) FROM pieces) p
    JOIN said s USING (system, user_id, epoch, episode)
    JOIN episodes e USING (system, user_id, epoch, episode)
    WHERE len(p.piece) - len(replace(p.piece, ' ', '')) >= {QUOTE_WORDS - 1}
      AND contains(' ' || s.reply || ' ', ' ' || p.piece || ' ')
      AND NOT contains(' ' || plain(e.task) || ' ', ' ' || p.piece || ' ')
)
SELECT j.system, j.access_mode, j.k, count(h.system), count(*) FILTER (j.disclosed), count(*),
       bool_and(j.marked)
FROM judged j
LEFT JOIN held h
    ON h.system = j.system AND h.access_mode = j.access_mode AND h.k IS NOT DISTINCT FROM j.k
    AND h.user_id = j.user_id AND h.epoch = j.epoch AND h.category = j.category
    AND h.dimension = j.dimension AND j.disclosed
GROUP BY ALL ORDER BY j.system, j.access_mode, j.k NULLS FIRST
"""
_PLAIN = r"""
CREATE OR REPLACE TEMP MACRO plain(text) AS
trim(regexp_replace(lower(replace(replace(text, '’', ''), '''', '')), '[^\p{L}\p{N}]+', ' ', 'g'))
"""


def quoting(connection: DuckDBPyConnection, manifest: Manifest, layer: str) -> list[Quoting]:
    """For each row of attributions, whether its evidence comes from the transcripts."""
    connection.execute(_PLAIN)
    # Played by us under `paper`, the published fault is reproduced, and known to be.
    played = manifest.origin is None and manifest.protocol is Protocol.PAPER
    return [
        Quoting(
            (system, mode, k),
            quoted,
            disclosed,
            judged,
            marked or (played and mode == AccessMode.RETRIEVE.value),
        )
        for system, mode, k, quoted, disclosed, judged, marked in connection.execute(
            _QUOTING, [layer]
        ).fetchall()
    ]


@dataclass(frozen=True, slots=True)
class Blame:
    """One user's targets read by top-k, with what the whole-store rows tell of disclosure.

    `shown` were not recovered and disclosed, `silent` not recovered and not
    disclosed, `unknown` those without a whole-store row that tells; `designed`
    the task's, `other` everything else.
    """

    mode: Mode
    user: str
    ok: int
    shown: int
    silent: int
    unknown: int
    designed: int
    other: int


# Recovered from the whole store: it cannot have been there unless the user let it show.
_BLAME = """
WITH whole AS (
    SELECT system, user_id, epoch, category, dimension,
           CASE WHEN label = 'ok' THEN true ELSE disclosed END AS disclosed
    FROM attributions WHERE layer = ? AND access_mode = 'dump_all'
)
SELECT r.system, r.access_mode, r.k, r.user_id,
       count(*) FILTER (r.label = 'ok'),
       count(*) FILTER (r.disclosed IS NOT NULL AND w.disclosed),
       count(*) FILTER (r.disclosed IS NOT NULL AND NOT w.disclosed),
       count(*) FILTER (r.disclosed IS NOT NULL AND w.disclosed IS NULL),
       count(*) FILTER (r.label = 'task_design_failure'),
       count(*) FILTER (r.disclosed IS NULL AND r.label NOT IN ('ok', 'task_design_failure'))
FROM attributions r
LEFT JOIN whole w USING (system, user_id, epoch, category, dimension)
WHERE r.layer = ? AND r.access_mode = 'retrieve'
GROUP BY ALL ORDER BY ALL
"""


def blame(connection: DuckDBPyConnection, layer: str) -> list[Blame]:
    """Attribution of the top-k rows with the disclosure verdicts of the whole-store rows."""
    rows = connection.execute(_BLAME, [layer, layer]).fetchall()
    return [Blame((row[0], row[1], row[2]), *row[3:]) for row in rows]


# A target that was never measured keeps nobody's label.
_LABELS = """
SELECT a.system, a.access_mode, a.k, a.user_id, a.label, count(*),
       count(*) FILTER (coalesce(v.status, 'unscored') = 'unscored')
FROM attributions a
LEFT JOIN strict.verdicts v
    ON v.layer = a.layer AND v.system = a.system AND v.user_id = a.user_id AND v.epoch = a.epoch
    AND v.access_mode = a.access_mode AND v.k IS NOT DISTINCT FROM a.k
    AND v.category = a.category AND v.dimension = a.dimension
WHERE a.layer = ?
GROUP BY ALL ORDER BY ALL
"""


@dataclass(frozen=True, slots=True)
class Labelled:
    """Targets of one user with a label; `unmeasured` of them had no measurement behind it."""

    mode: Mode
    user: str
    label: str
    n: int
    unmeasured: int


def labels(connection: DuckDBPyConnection, layer: str) -> list[Labelled]:
    """The labels as they are stored; asks `strict.verdicts`."""
    rows = connection.execute(_LABELS, [layer]).fetchall()
    return [Labelled((row[0], row[1], row[2]), *row[3:]) for row in rows]


def stricten(connection: DuckDBPyConnection) -> None:
    """Make `strict.verdicts`: what has a reason was never measured, whatever its score says."""
    connection.execute("CREATE SCHEMA strict")
    connection.execute(
        "CREATE VIEW strict.verdicts AS SELECT * REPLACE ("
        "CASE WHEN reason IS NULL THEN status ELSE 'unscored' END AS status, "
        "CASE WHEN reason IS NULL THEN score END AS score) FROM main.verdicts"
    )


_REASONS = """
SELECT v.system, v.access_mode, v.k, v.reason, count(*), count(*) FILTER (v.status = 'scored'),
       count(DISTINCT v.user_id),
       count(*) FILTER (v.label = 'unknown' AND coalesce(s.label_reason, '') = '')
FROM main.verdicts v
LEFT JOIN slot_fills s
    ON s.layer = 'base' AND s.system = v.system AND s.user_id = v.user_id AND s.epoch = v.epoch
    AND s.access_mode = v.access_mode AND s.k IS NOT DISTINCT FROM v.k
    AND s.category = v.category AND s.dimension = v.dimension
WHERE v.layer = ? AND v.reason IS NOT NULL
GROUP BY ALL ORDER BY ALL
"""


@dataclass(frozen=True, slots=True)
class Unmeasured:
    """Verdicts with a reason: how many, how many of them count as scored, of how many users.

    `blank` have the label `unknown` and an empty reason in the slot-fill.
    """

    mode: Mode
    reason: str
    n: int
    scored: int
    users: int
    blank: int


def unmeasured(connection: DuckDBPyConnection, layer: str) -> list[Unmeasured]:
    """What was not measured, by row and reason."""
    rows = connection.execute(_REASONS, [layer]).fetchall()
    return [Unmeasured((row[0], row[1], row[2]), *row[3:]) for row in rows]


@dataclass(frozen=True, slots=True)
class Sizes:
    """The stores of a system that did not all fit its reader, in characters of what it read.

    Largest store of a user that fits (None when none does) and smallest that does not.
    """

    system: str
    fits: tuple[str, ...]
    fails: tuple[str, ...]
    largest_fit: int | None
    smallest_fail: int | None


_OVERFLOW = """
SELECT system, user_id, bool_or(reason = 'store_overflow') FROM main.verdicts
WHERE layer = ? AND access_mode = 'dump_all'
GROUP BY ALL HAVING count(*) FILTER (reason IS DISTINCT FROM 'store_overflow') = 0
    OR bool_and(reason IS DISTINCT FROM 'store_overflow')
ORDER BY ALL
"""


def overflow(connection: DuckDBPyConnection, layer: str) -> list[Sizes]:
    """Systems with stores that did not fit the reader, and the sizes on either side."""
    users: dict[str, dict[str, bool]] = {}
    for system, user, over in connection.execute(_OVERFLOW, [layer]).fetchall():
        users.setdefault(system, {})[user] = bool(over)
    found = []
    for system, over in users.items():
        if not any(over.values()):
            continue
        fits = tuple(user for user, failed in over.items() if not failed)
        fails = tuple(user for user, failed in over.items() if failed)
        rough = _rough_sizes(connection, system)
        edge = max((rough.get(user, 0) for user in fits), default=0)
        near = [user for user in fits if rough.get(user, 0) >= _NEAR * edge]
        edge = min((rough.get(user, 0) for user in fails), default=0)
        near += [user for user in fails if rough.get(user, 0) * _NEAR <= edge]
        sizes = _read_sizes(connection, system, near)
        found.append(
            Sizes(
                system,
                fits,
                fails,
                max((sizes[user] for user in fits if user in sizes), default=None),
                min((sizes[user] for user in fails if user in sizes), default=None),
            )
        )
    return found


_NEAR = 0.85
"""Stores whose rough size is this near the edge are measured exactly; that takes time."""


def _rough_sizes(connection: DuckDBPyConnection, system: str) -> dict[str, int]:
    rows = connection.execute(
        "SELECT user_id, max(n) FROM ("
        "SELECT user_id, epoch, sum(chars + length(coalesce(fields_json, '')))::BIGINT AS n "
        "FROM memory_items WHERE system = ? GROUP BY ALL) GROUP BY ALL",
        [system],
    ).fetchall()
    return dict(rows)


def _read_sizes(
    connection: DuckDBPyConnection, system: str, users: Sequence[str]
) -> dict[str, int]:
    """Characters of a user's largest store as the published reader is given it."""
    rows = connection.execute(
        "SELECT user_id, epoch, item_id, content, fields_json FROM memory_items "
        "WHERE system = ? AND list_contains(?, user_id) ORDER BY user_id, epoch, seq",
        [system, [*users]],
    ).fetchall()
    stores: dict[tuple[str, int], list[Any]] = {}
    for user, epoch, item, content, fields in rows:
        own = json.loads(fields) if fields else None
        record = {"id": item, "content": content, **(own if isinstance(own, dict) else {})}
        stores.setdefault((user, epoch), []).append(record)
    sizes: dict[str, int] = {}
    for (user, _), items in stores.items():
        text = json.dumps(items, ensure_ascii=False, indent=2)
        sizes[user] = max(sizes.get(user, 0), len(text))
    return sizes


@dataclass(frozen=True, slots=True)
class Refused:
    """Targets that the oracle said no task could invite, and how many came out all the same."""

    mode: Mode
    recovered: int
    refused: int


_REFUSED = """
SELECT v.system, v.access_mode, v.k, count(*) FILTER (v.score >= 0.75), count(*)
FROM strict.verdicts v
JOIN oracle_verdicts o USING (user_id, category, dimension)
WHERE v.layer = ? AND v.status = 'scored' AND NOT o.can_invite
GROUP BY ALL ORDER BY v.system, v.access_mode, v.k NULLS FIRST
"""


def refused(connection: DuckDBPyConnection, layer: str) -> tuple[int, int, list[Refused]]:
    """Targets that the oracle refused, those it judged, and what each row recovered of them."""
    no, judged = connection.execute(
        "SELECT count(*) FILTER (NOT can_invite), count(can_invite) FROM oracle_verdicts"
    ).fetchall()[0]
    rows = connection.execute(_REFUSED, [layer]).fetchall()
    return no, judged, [Refused((row[0], row[1], row[2]), *row[3:]) for row in rows]


@dataclass(frozen=True, slots=True)
class Replies:
    """Assistant replies that a store holds word for word: an episode's last ones, and earlier."""

    system: str
    last_kept: int
    last: int
    earlier_kept: int
    earlier: int

    @property
    def loses_last(self) -> bool:
        """Whether the store keeps replies, but not those that end an episode."""
        keeps = self.earlier and self.earlier_kept / self.earlier >= KEPT_AT_LEAST
        return bool(keeps and self.last and self.last_kept / self.last <= 1 - KEPT_AT_LEAST)


# A note may begin with who spoke. Texts are compared by their hashes: they are long. Of equal
# replies as many are kept as there are notes, those that end an episode last.
_REPLIES = r"""
WITH reply AS (
    SELECT system, user_id, epoch, md5(trim(assistant_text)) AS text, episode, turn,
           turn = max(turn) OVER (PARTITION BY system, user_id, epoch, episode) AS last
    FROM turns WHERE trim(assistant_text) <> ''
),
counted AS (
    SELECT *, row_number() OVER (
        PARTITION BY system, user_id, epoch, text ORDER BY last, episode, turn
    ) AS copy FROM reply
),
note AS (
    SELECT system, user_id, epoch, text, count(*) AS copies
    FROM (
        SELECT system, user_id, epoch,
               md5(trim(regexp_replace(content, '^[A-Za-z]{1,12}( said)?: ', ''))) AS text
        FROM memory_items
    ) GROUP BY ALL
)
SELECT system, count(*) FILTER (last AND copies >= copy), count(*) FILTER (last),
       count(*) FILTER (NOT last AND copies >= copy), count(*) FILTER (NOT last)
FROM counted LEFT JOIN note USING (system, user_id, epoch, text)
GROUP BY ALL ORDER BY ALL
"""


def replies(connection: DuckDBPyConnection) -> list[Replies]:
    """Which of the assistant's replies each system's stores hold."""
    return [Replies(*row) for row in connection.execute(_REPLIES).fetchall()]


@dataclass(frozen=True, slots=True)
class Scores:
    """What a system's retrieval scores are: how many there are, their range, their order.

    `short` of `asked` searches returned fewer than `k` items; searches that
    returned nothing are among them.
    """

    system: str
    scored: int
    items: int
    low: float | None
    high: float | None
    falling: int
    rising: int
    short: int
    asked: int
    k: int

    @property
    def kind(self) -> str:
        """`descending`, `ascending`, `none` or `mixed`: how scores go from the first item on."""
        if not self.scored:
            return "none"
        if self.scored < self.items or (self.falling and self.rising):
            return "mixed"
        if not self.falling and not self.rising:
            return "constant"
        return "descending" if self.falling else "ascending"


_SCORES = """
WITH item AS (
    SELECT *, lag(score) OVER (
        PARTITION BY system, user_id, epoch, category, dimension, query ORDER BY rank
    ) AS before FROM retrievals
),
found AS (
    SELECT system, user_id, epoch, category, dimension, count(*) AS n FROM retrievals GROUP BY ALL
),
asked AS (
    SELECT system, user_id, epoch, category, dimension, max(k) AS k FROM main.verdicts
    WHERE layer = ? AND access_mode = 'retrieve' GROUP BY ALL
),
searches AS (
    SELECT a.system, count(*) FILTER (coalesce(f.n, 0) < a.k) AS short, count(*) AS asked,
           max(a.k) AS k
    FROM asked a LEFT JOIN found f USING (system, user_id, epoch, category, dimension)
    GROUP BY ALL
),
scored AS (
    SELECT system, count(score) AS scored, count(*) AS items, min(score) AS low,
           max(score) AS high, count(*) FILTER (score < before) AS falling,
           count(*) FILTER (score > before) AS rising
    FROM item GROUP BY ALL
)
SELECT s.system, coalesce(scored, 0), coalesce(items, 0), low, high, coalesce(falling, 0),
       coalesce(rising, 0), short, asked, k
FROM searches s LEFT JOIN scored USING (system) ORDER BY ALL
"""


def retrieval_scores(connection: DuckDBPyConnection, layer: str) -> list[Scores]:
    """What the scores of each system's retrieved items are."""
    return [Scores(*row) for row in connection.execute(_SCORES, [layer]).fetchall()]
