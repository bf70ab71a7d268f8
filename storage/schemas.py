"""The tables of a run: one explicit Arrow schema each, and the check that rows meet it.

Types and nullability are part of the format; a change of them is a new
`SCHEMA_VERSION`. No table but `calls` and `operations` holds anything that
differs between two runs of a deterministic model (wall times, paths, run names).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import datetime
from itertools import pairwise
from typing import Any

import pyarrow as pa

from memprobe.errors import StorageError
from memprobe.outcomes import Reason
from memprobe.text import sanitize

SCHEMA_VERSION = 1

_TYPES = {
    "text": pa.string(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float64(),
    "bool": pa.bool_(),
}


def _schema(columns: str) -> pa.Schema:
    """`name:type` separated by spaces; a `!` after the type means not nullable."""
    fields = []
    for column in columns.split():
        name, kind = column.split(":")
        fields.append(pa.field(name, _TYPES[kind.rstrip("!")], nullable=not kind.endswith("!")))
    return pa.schema(fields)


_STORE = "system:text! user_id:text! epoch:int!"
_TARGET = "category:text! dimension:text!"
_OUTCOME = "status:text! reason:text detail:text"
_ACCESS = "layer:text! access_mode:text! k:int"

SCHEMAS: dict[str, pa.Schema] = {
    "users": _schema(
        "user_id:text! profile_json:text! n_targets:int! n_tasks:int! dataset_digest:text!"
    ),
    "targets": _schema(f"user_id:text! {_TARGET} short:text! explanation:text!"),
    "tasks": _schema(
        f"user_id:text! task_index:int! task:text! rationale:text {_TARGET} planted:text "
        "critic_json:text"
    ),
    "episodes": _schema(
        f"{_STORE} episode:int! {_TARGET} task:text! event_time:text! end_reason:text "
        f"n_turns:int! pref_mean:float {_OUTCOME}"
    ),
    "turns": _schema(
        f"{_STORE} episode:int! turn:int! event_time:text! assistant_text:text! "
        "assistant_call:text feedback_type:text user_text:text simulator_call:text "
        "retrieved_json:text"
    ),
    "preference_scores": _schema(
        f"{_STORE} episode:int! turn:int! idx:int! dimension:text! score:int judge_reason:text "
        f"{_OUTCOME} call_id:text"
    ),
    "turn_scores": _schema(f"{_STORE} episode:int! turn:int! score:float summary:text {_OUTCOME}"),
    "memory_items": _schema(
        f"{_STORE} seq:int! item_id:text! content:text! event_time:text chars:int! fields_json:text"
    ),
    "footprints": _schema(
        f"{_STORE} items:long! chars:long! tokens:long! tokenizer:text! reader:text! window:long "
        "source:text!"
    ),
    "operations": _schema(f"{_STORE} phase:text! episode:int latency_s:float!"),
    "retrievals": _schema(
        f"{_STORE} {_TARGET} query:text! rank:int! item_id:text! content:text! score:float"
    ),
    "slot_fills": _schema(
        f"{_STORE} {_ACCESS} {_TARGET} label:text label_reason:text n_items:int "
        f"prompt_tokens:long {_OUTCOME} call_id:text"
    ),
    "slot_fill_parts": _schema(
        f"{_STORE} layer:text! {_TARGET} step:int! part:int! n_parts:int! first_seq:int "
        f"last_seq:int prompt_tokens:long label:text label_reason:text {_OUTCOME} call_id:text"
    ),
    "verdicts": _schema(
        f"{_STORE} {_ACCESS} {_TARGET} label:text score:float judge_reason:text judge_model:text "
        f"{_OUTCOME} call_id:text"
    ),
    "oracle_verdicts": _schema(
        f"user_id:text! {_TARGET} can_invite:bool oracle_reason:text {_OUTCOME} call_id:text"
    ),
    "attributions": _schema(
        f"{_STORE} {_ACCESS} {_TARGET} label:text! score:float episode:int can_invite:bool "
        f"disclosed:bool evidence:text cause_reason:text {_OUTCOME} oracle_call:text "
        "disclosure_call:text subclass_call:text"
    ),
    "calls": _schema(
        "call_id:text stage:text! role:text! model:text! system:text! user_id:text! item:text! "
        "prompt:text attempt:int! ledger_hit:bool! outcome:text! detail:text repaired:bool! "
        "prompt_tokens:long cached_tokens:long completion_tokens:long reasoning_tokens:long "
        "cost_usd:float latency_s:float wait_s:float retries:int created_at:text"
    ),
    "judge_checks": _schema(
        f"system:text! user_id:text! kind:text! {_TARGET} label:text expected_min:float "
        "expected_max:float score:float status:text! reason:text call_id:text"
    ),
    "extras": _schema(
        "system:text user_id:text kind:text! path:text! place:int! episode:int access_mode:text "
        "sha256:text! style:text! template_json:text!"
    ),
    "import_issues": _schema(
        "number:int! severity:text! path:text! field:text! problem:text! done:text! system:text! "
        "user_id:text! table_name:text!"
    ),
    "audits": _schema(
        f"sheet:text! rater:text! item_id:text! n_items:int! {_STORE} {_ACCESS} {_TARGET} "
        "stratum:text! weight:float! judge_score:float! judge_label:text human_score:float "
        "human_label:text note:text"
    ),
    "audit_problems": _schema(
        "sheet:text! number:int! file:text! row:int! item_id:text! rater:text! kind:text! "
        "problem:text!"
    ),
    "judge_agreement": _schema(
        "first:text! second:text! scope:text! system:text access_mode:text k:int n_items:long! "
        "n_users:int! kappa:float kappa_lo:float kappa_hi:float mean_error:float "
        "mean_error_lo:float mean_error_hi:float shift:float exact:float threshold:float "
        "threshold_lo:float threshold_hi:float first_passed:float second_passed:float "
        "confusion_json:text!"
    ),
    "polarity": _schema(
        f"{_STORE} access_mode:text! k:int {_TARGET} label:text! method:text! polarity:text "
        f"target_pole:text label_pole:text target_said:text label_said:text {_OUTCOME} "
        "call_id:text"
    ),
    "specs": _schema("user_id:text! spec_json:text! n_sessions:int! dataset_digest:text!"),
    "sessions": _schema(
        "user_id:text! session_index:int! session_type:text! event_time:text! dialogue_json:text!"
    ),
    "probes": _schema(
        "user_id:text! probe_index:int! probe_type:text! question:text! gold_answer:text "
        "expected:text! paradigm:text! condition:text! domain:text! split:bool! group_id:text "
        "fact_type:text structured_temporal:bool!"
    ),
    "ingests": _schema(f"{_STORE} session_index:int! event_time:text! {_OUTCOME}"),
    "answers": _schema(
        f"{_STORE} {_ACCESS} probe_type:text! n_items:int prompt_tokens:long answer_json:text "
        f"{_OUTCOME} call_id:text"
    ),
    "probe_verdicts": _schema(
        f"{_STORE} {_ACCESS} scorer:text! probe_type:text! match:text parts_json:text "
        f"why:text {_OUTCOME} call_id:text"
    ),
    "probe_failures": _schema(
        f"{_STORE} {_ACCESS} scorer:text! probe_type:text! failure:text! side:text "
        "evidence:text item_ids_json:text"
    ),
    "probe_metrics": _schema(
        "layer:text! scorer:text! system:text! access_mode:text k:int metric:text! "
        "group_kind:text! group_name:text! value:float se:float lo:float hi:float n:long! "
        "n_other:long n_episodes:int! n_errors:long! n_total:long!"
    ),
    "probe_comparisons": _schema(
        "layer:text! scorer:text! first:text! first_mode:text! first_k:int second:text! "
        "second_mode:text! second_k:int metric:text! group_kind:text! group_name:text! "
        "n_episodes:int! difference:float lo:float hi:float p:float p_corrected:float "
        "correction:text! shown:bool!"
    ),
    "probe_correlations": _schema(
        "layer:text! scorer:text! kind:text! first:text! second:text! n:int! pearson:float "
        "spearman:float"
    ),
    "probe_profiles": _schema(
        "layer:text! scorer:text! system:text! access_mode:text! k:int profile_json:text!"
    ),
    "metrics": _schema(
        "layer:text! system:text! access_mode:text k:int metric:text! category:text value:float "
        "std:float lo:float hi:float n_users:int! n_scored:long! n_total:long!"
    ),
}
"""Column order is the order in the files."""

UNPARTITIONED = frozenset(
    {
        *("metrics", "footprints", "import_issues", "audits", "audit_problems"),
        *("probe_metrics", "probe_comparisons", "probe_correlations", "probe_profiles"),
    }
)
USER_ONLY = frozenset(
    {
        *("users", "targets", "tasks", "oracle_verdicts", "judge_checks"),
        *("specs", "sessions", "probes"),
    }
)

_TARGET_KEY = ("category", "dimension")
_STORE_KEY = ("system", "user_id", "epoch")
_ACCESS_KEY = ("layer", "access_mode", "k")

UNIQUE: dict[str, tuple[str, ...]] = {
    "users": ("user_id",),
    "targets": ("user_id", *_TARGET_KEY),
    "tasks": ("user_id", "task_index"),
    "episodes": (*_STORE_KEY, "episode"),
    "turns": (*_STORE_KEY, "episode", "turn"),
    "preference_scores": (*_STORE_KEY, "episode", "turn", "idx"),
    "turn_scores": (*_STORE_KEY, "episode", "turn"),
    "memory_items": (*_STORE_KEY, "seq"),
    "footprints": _STORE_KEY,
    "slot_fills": (*_STORE_KEY, *_ACCESS_KEY, *_TARGET_KEY),
    "slot_fill_parts": (*_STORE_KEY, "layer", *_TARGET_KEY, "step", "part"),
    "verdicts": (*_STORE_KEY, *_ACCESS_KEY, *_TARGET_KEY),
    "oracle_verdicts": ("user_id", *_TARGET_KEY),
    "attributions": (*_STORE_KEY, *_ACCESS_KEY, *_TARGET_KEY),
    "extras": ("path", "place"),
    "import_issues": ("number",),
    "audits": ("sheet", "rater", "item_id"),
    "audit_problems": ("sheet", "number"),
    "judge_agreement": ("first", "second", "scope", "system", "access_mode", "k"),
    "polarity": (*_STORE_KEY, "method", "access_mode", "k", *_TARGET_KEY),
    "specs": ("user_id",),
    "sessions": ("user_id", "session_index"),
    "probes": ("user_id", "probe_index"),
    "ingests": (*_STORE_KEY, "session_index"),
    "answers": (*_STORE_KEY, *_ACCESS_KEY, "probe_type"),
    "probe_verdicts": (*_STORE_KEY, *_ACCESS_KEY, "scorer", "probe_type"),
    "probe_failures": (*_STORE_KEY, *_ACCESS_KEY, "scorer", "probe_type"),
    "probe_metrics": (
        *("layer", "scorer", "system", "access_mode", "k"),
        *("metric", "group_kind", "group_name"),
    ),
    "probe_comparisons": (
        *("layer", "scorer", "first", "first_mode", "first_k"),
        *("second", "second_mode", "second_k", "metric", "group_kind", "group_name"),
    ),
    "probe_correlations": ("layer", "scorer", "kind", "first", "second"),
    "probe_profiles": ("layer", "scorer", "system", "access_mode", "k"),
    "metrics": ("layer", "system", "access_mode", "k", "metric", "category"),
}
"""What one row is about. Two rows of one key would count an item twice."""

ORDER: dict[str, tuple[str, ...]] = {
    **UNIQUE,
    "retrievals": (*_STORE_KEY, *_TARGET_KEY, "query", "rank"),
    "judge_checks": ("user_id", *_TARGET_KEY, "kind"),
    "operations": (*_STORE_KEY, "episode"),
    "calls": ("stage", "system", "user_id", "item", "role", "attempt"),
}
"""The order of rows in a part, so that equal rows make equal bytes. The sort is stable."""

_REASONS = frozenset(r.value for r in Reason)


def schema_of(table: str) -> pa.Schema:
    """The schema of a table; raises `StorageError` listing the tables."""
    try:
        return SCHEMAS[table]
    except KeyError:
        raise StorageError(
            f"no table {table!r}; the tables are {', '.join(sorted(SCHEMAS))}"
        ) from None


def _cell(value: Any, field: pa.Field) -> Any:
    kind = field.type
    if value is None:
        if not field.nullable:
            raise ValueError("a value is required")
        return None
    if kind == pa.string():
        if isinstance(value, datetime):
            if value.tzinfo is None:
                raise ValueError("the time has no zone")
            return value.isoformat()
        if not isinstance(value, str):
            raise ValueError(f"text is needed, not {type(value).__name__}")
        return sanitize(str(value))[0]
    if kind == pa.bool_():
        if not isinstance(value, bool):
            raise ValueError(f"true or false is needed, not {value!r}")
        return value
    if isinstance(value, bool):
        raise ValueError(f"a number is needed, not {value!r}")
    if kind == pa.float64():
        number = float(value)
        if not math.isfinite(number):
            raise ValueError(f"{number} is no value; what has none is NULL with a reason")
        return number
    if int(value) != value:
        raise ValueError(f"a whole number is needed, not {value!r}")
    return int(value)


def _check_outcome(table: str, row: Mapping[str, Any]) -> None:
    status, reason = row.get("status"), row.get("reason")
    if status not in ("scored", "unscored"):
        raise ValueError(f"status is {status!r}; it is 'scored' or 'unscored'")
    if reason is not None and reason not in _REASONS:
        raise ValueError(f"reason {reason!r} is not one of {', '.join(sorted(_REASONS))}")
    if status == "unscored" and reason is None:
        raise ValueError("an unscored row needs a reason")
    if table in ("verdicts", "judge_checks", "preference_scores"):
        if status == "unscored" and row.get("score") is not None:
            raise ValueError("an unscored row has no score: an error is never a score")
        if status == "scored" and row.get("score") is None and table != "preference_scores":
            raise ValueError("a scored row needs a score")


def _sortable(value: Any) -> tuple[bool, Any]:
    return (value is not None, 0 if value is None else value)


def to_table(table: str, rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    """Rows as an Arrow table of the table's schema, checked, sanitized and sorted.

    A missing nullable column is NULL. Raises `StorageError` naming table, row
    and column for an unknown column, a missing or wrong value, a NaN, an
    outcome that contradicts itself, and a second row of one key.
    """
    schema = schema_of(table)
    names = frozenset(schema.names)
    clean: list[dict[str, Any]] = []
    for number, row in enumerate(rows):
        unknown = sorted(set(row) - names)
        if unknown:
            raise StorageError(
                f"table {table}, row {number}: unknown column {', '.join(unknown)}; "
                f"the columns are {', '.join(schema.names)}"
            )
        out: dict[str, Any] = {}
        for field in schema:
            try:
                out[field.name] = _cell(row.get(field.name), field)
            except (ValueError, TypeError, OverflowError) as error:
                raise StorageError(
                    f"table {table}, row {number}, column {field.name}: {error}"
                ) from error
        if "status" in names:
            try:
                _check_outcome(table, out)
            except ValueError as error:
                raise StorageError(
                    f"table {table}, row {number}, column status: {error}"
                ) from error
        clean.append(out)
    clean.sort(key=lambda row: tuple(_sortable(row[c]) for c in ORDER[table]))
    key = UNIQUE.get(table)
    if key:
        for before, after in pairwise(clean):
            if all(before[c] == after[c] for c in key):
                at = ", ".join(f"{c}={after[c]!r}" for c in key)
                raise StorageError(f"table {table}: two rows for {at}")
    try:
        return pa.Table.from_pylist(clean, schema=schema)
    except pa.ArrowException as error:
        raise StorageError(f"table {table}: {error}") from error
