-- Tokens, money and latency are those of calls this run sent; a ledger hit was paid for earlier.
-- A price that is unknown is left out of the sum and counted in `unpriced_calls`.
CREATE VIEW calls_summary AS
SELECT stage, role, model,
       count(*) AS calls,
       count(*) FILTER (ledger_hit) AS ledger_hits,
       sum(prompt_tokens) FILTER (NOT ledger_hit)::BIGINT AS prompt_tokens,
       sum(cached_tokens) FILTER (NOT ledger_hit)::BIGINT AS cached_tokens,
       sum(completion_tokens) FILTER (NOT ledger_hit)::BIGINT AS completion_tokens,
       sum(cost_usd) FILTER (NOT ledger_hit) AS cost_usd,
       quantile_disc(latency_s, 0.5) FILTER (NOT ledger_hit) AS latency_p50_s,
       quantile_disc(latency_s, 0.95) FILTER (NOT ledger_hit) AS latency_p95_s,
       count(*) FILTER (NOT ledger_hit AND outcome = 'ok' AND cost_usd IS NULL) AS unpriced_calls,
       count(*) FILTER (outcome <> 'ok') AS failed_calls,
       sum(cost_usd) FILTER (ledger_hit) AS replayed_cost_usd
FROM calls
GROUP BY ALL
ORDER BY stage, role, model;

CREATE VIEW latency_summary AS
SELECT system, phase, count(*) AS n,
       quantile_disc(latency_s, 0.5) AS p50, quantile_disc(latency_s, 0.95) AS p95
FROM operations
GROUP BY ALL
ORDER BY system, phase;

-- `example` is the commonest detail; a planted answer's is that of its call.
CREATE VIEW unscored_summary AS
WITH failed AS (
    SELECT 'rollout' AS stage, system, NULL::VARCHAR AS access_mode, NULL::INTEGER AS k, reason,
           detail
    FROM episodes WHERE status = 'unscored'
    UNION ALL
    SELECT 'preference', system, NULL, NULL, reason, detail
    FROM preference_scores WHERE status = 'unscored'
    UNION ALL
    SELECT 'recover', system, access_mode, k, reason, detail
    FROM verdicts WHERE status = 'unscored' AND layer = 'base'
    UNION ALL
    SELECT 'attribute', system, access_mode, k, reason, detail
    FROM attributions WHERE status = 'unscored' AND layer = 'base'
    UNION ALL
    SELECT 'recover_chunked', system, access_mode, k, reason, detail
    FROM verdicts WHERE status = 'unscored' AND layer = 'chunked'
    UNION ALL
    SELECT 'attribute_chunked', system, access_mode, k, reason, detail
    FROM attributions WHERE status = 'unscored' AND layer = 'chunked'
    UNION ALL
    SELECT 'oracle', '', NULL, NULL, reason, detail
    FROM oracle_verdicts WHERE status = 'unscored'
    UNION ALL
    SELECT 'judge_check', '', NULL, NULL, j.reason, c.detail
    FROM judge_checks j
    LEFT JOIN (
        SELECT call_id, outcome, max(detail) AS detail
        FROM calls WHERE stage = 'judge_check' AND outcome <> 'ok'
        GROUP BY ALL
    ) c ON c.call_id = j.call_id AND c.outcome = j.reason
    WHERE j.status = 'unscored'
)
SELECT stage, system, access_mode, k, reason, count(*) AS n,
       mode(detail ORDER BY detail) FILTER (detail <> '') AS example
FROM failed
GROUP BY ALL
ORDER BY stage, system, access_mode, k NULLS FIRST, reason;

-- Copies within one store, and among the items that one query brought back.
CREATE VIEW duplicates_summary AS
WITH stored AS (
    SELECT system, user_id, epoch, count(*) AS items, count(DISTINCT content) AS distinct_contents
    FROM memory_items
    GROUP BY ALL
),
returned AS (
    SELECT system, user_id, epoch, category, dimension, count(*) AS items,
           count(DISTINCT content) AS distinct_contents
    FROM retrievals
    GROUP BY ALL
),
s AS (
    SELECT system, count(*) AS stores, sum(items)::BIGINT AS items,
           sum(distinct_contents)::BIGINT AS distinct_contents
    FROM stored GROUP BY ALL
),
r AS (
    SELECT system, sum(items)::BIGINT AS retrieved,
           sum(distinct_contents)::BIGINT AS retrieved_distinct
    FROM returned GROUP BY ALL
)
SELECT s.system, s.stores, s.items, s.distinct_contents,
       1 - s.distinct_contents / s.items AS duplicate_rate,
       r.retrieved, r.retrieved_distinct,
       1 - r.retrieved_distinct / nullif(r.retrieved, 0) AS retrieved_duplicate_rate
FROM s
LEFT JOIN r USING (system)
ORDER BY s.system;

CREATE VIEW judge_check_summary AS
SELECT kind, count(*) AS n,
       count(*) FILTER (status = 'scored') AS n_scored,
       count(*) FILTER (status = 'scored' AND score BETWEEN expected_min AND expected_max)
           AS n_in_range,
       count(*) FILTER (status = 'scored' AND score BETWEEN expected_min AND expected_max)
           / nullif(count(*) FILTER (status = 'scored'), 0) AS share
FROM judge_checks
GROUP BY ALL
ORDER BY kind;
