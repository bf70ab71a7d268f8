-- What a memory system asks its own model for (role memory), by what it was doing at the time.
-- Every ask counts, also one that the ledger answered: `work_usd` is what the calls cost whoever
-- pays for them first, so that a system is not cheap because another one asked before it. What
-- this run really paid is `paid_usd`. One unknown price makes a sum unknown.
CREATE VIEW memory_calls AS
SELECT stage, system, user_id,
       CASE WHEN item LIKE 'search/%' THEN 'search'
            WHEN item LIKE '%/write' THEN 'write'
            ELSE 'other' END AS phase,
       model, call_id, ledger_hit, outcome, prompt_tokens, cached_tokens, completion_tokens,
       cost_usd, latency_s,
       -- A call that failed without an answer has neither tokens nor a price, and costs nothing.
       outcome = 'ok' OR prompt_tokens IS NOT NULL OR completion_tokens IS NOT NULL AS answered
FROM calls
WHERE role = 'memory';

CREATE VIEW memory_calls_by_user AS
SELECT system, user_id, phase,
       count(*) AS calls,
       count(*) FILTER (NOT ledger_hit) AS calls_sent,
       count(*) FILTER (ledger_hit) AS ledger_hits,
       count(*) FILTER (outcome <> 'ok') AS failed_calls,
       count(*) FILTER (answered AND (prompt_tokens IS NULL OR completion_tokens IS NULL))
           AS uncounted_calls,
       count(*) FILTER (answered AND cost_usd IS NULL) AS unpriced_calls,
       count(*) FILTER (answered AND cost_usd IS NULL AND NOT ledger_hit) AS unpriced_sent,
       coalesce(sum(prompt_tokens), 0)::BIGINT AS prompt_tokens,
       coalesce(sum(completion_tokens), 0)::BIGINT AS completion_tokens,
       coalesce(sum(cost_usd), 0) AS known_usd,
       coalesce(sum(cost_usd) FILTER (NOT ledger_hit), 0) AS known_paid_usd,
       coalesce(sum(latency_s) FILTER (ledger_hit), 0) AS replayed_s
FROM memory_calls
GROUP BY ALL;

-- By phase, and never over phases: seconds inside the memory system, and the calls made there.
-- Median and 95th percentile are nearest-rank.
CREATE VIEW memory_phases AS
WITH timed AS (
    SELECT system, phase, count(*) AS n, sum(latency_s) AS total_s,
           quantile_disc(latency_s, 0.5) AS p50_s, quantile_disc(latency_s, 0.95) AS p95_s,
           max(latency_s) AS max_s
    FROM operations
    GROUP BY ALL
),
asked AS (
    SELECT system, phase, sum(calls)::BIGINT AS calls, sum(ledger_hits)::BIGINT AS ledger_hits,
           CASE WHEN sum(uncounted_calls) = 0 THEN sum(prompt_tokens)::BIGINT END AS prompt_tokens,
           CASE WHEN sum(uncounted_calls) = 0 THEN sum(completion_tokens)::BIGINT END
               AS completion_tokens,
           CASE WHEN sum(unpriced_calls) = 0 THEN sum(known_usd) END AS work_usd,
           CASE WHEN sum(unpriced_sent) = 0 THEN sum(known_paid_usd) END AS paid_usd
    FROM memory_calls_by_user
    GROUP BY ALL
)
SELECT system, phase, t.n, t.total_s, t.p50_s, t.p95_s, t.max_s,
       a.calls, a.ledger_hits, a.prompt_tokens, a.completion_tokens, a.work_usd, a.paid_usd
FROM timed t
FULL JOIN asked a USING (system, phase)
ORDER BY system, phase;

-- Ingestion: all that a system does and asks for to take messages in, not to search them. A user
-- counts once its rollout is stored. `write_s` is measured; `replayed_s` is what the model took
-- the first time for calls that the ledger answered here, and is no part of it.
CREATE VIEW ingestion_by_user AS
WITH written AS (
    SELECT system, user_id, count(DISTINCT epoch) AS stores,
           count(*) FILTER (phase = 'write') AS messages,
           coalesce(sum(latency_s) FILTER (phase = 'write'), 0) AS write_s,
           coalesce(sum(latency_s) FILTER (phase = 'save'), 0) AS save_s
    FROM operations
    GROUP BY ALL
    HAVING count(*) FILTER (phase = 'write') > 0
),
asked AS (
    SELECT system, user_id,
           sum(calls)::BIGINT AS calls, sum(calls_sent)::BIGINT AS calls_sent,
           sum(ledger_hits)::BIGINT AS ledger_hits, sum(failed_calls)::BIGINT AS failed_calls,
           sum(uncounted_calls)::BIGINT AS uncounted_calls,
           sum(unpriced_calls)::BIGINT AS unpriced_calls,
           sum(unpriced_sent)::BIGINT AS unpriced_sent,
           sum(prompt_tokens)::BIGINT AS prompt_tokens,
           sum(completion_tokens)::BIGINT AS completion_tokens,
           sum(known_usd) AS known_usd, sum(known_paid_usd) AS known_paid_usd,
           sum(replayed_s) AS replayed_s
    FROM memory_calls_by_user
    WHERE phase <> 'search'
    GROUP BY ALL
),
-- A run whose calls were not recorded has none to count, which is not the same as no calls.
recorded AS (SELECT count(*) > 0 AS calls FROM calls)
SELECT w.system, w.user_id, w.stores, w.messages, w.write_s, w.save_s,
       CASE WHEN r.calls THEN coalesce(a.calls, 0) END AS calls,
       CASE WHEN r.calls THEN coalesce(a.calls_sent, 0) END AS calls_sent,
       CASE WHEN r.calls THEN coalesce(a.ledger_hits, 0) END AS ledger_hits,
       CASE WHEN r.calls THEN coalesce(a.failed_calls, 0) END AS failed_calls,
       CASE WHEN r.calls THEN coalesce(a.unpriced_calls, 0) END AS unpriced_calls,
       CASE WHEN r.calls AND coalesce(a.uncounted_calls, 0) = 0
           THEN coalesce(a.prompt_tokens, 0) END AS prompt_tokens,
       CASE WHEN r.calls AND coalesce(a.uncounted_calls, 0) = 0
           THEN coalesce(a.completion_tokens, 0) END AS completion_tokens,
       CASE WHEN r.calls AND coalesce(a.unpriced_calls, 0) = 0
           THEN coalesce(a.known_usd, 0) END AS work_usd,
       CASE WHEN r.calls AND coalesce(a.unpriced_sent, 0) = 0
           THEN coalesce(a.known_paid_usd, 0) END AS paid_usd,
       CASE WHEN r.calls THEN coalesce(a.replayed_s, 0) END AS replayed_s
FROM written w
CROSS JOIN recorded r
LEFT JOIN asked a USING (system, user_id)
ORDER BY w.system, w.user_id;

CREATE VIEW ingestion AS
WITH attempted AS (
    SELECT system, count(DISTINCT user_id) AS n
    FROM (
        SELECT system, user_id FROM verdicts
        UNION ALL SELECT system, user_id FROM episodes
        UNION ALL SELECT system, user_id FROM probe_verdicts
        UNION ALL SELECT system, user_id FROM operations
    )
    GROUP BY ALL
),
-- A sum over users of whom one is unknown is unknown.
summed AS (
    SELECT system, count(*) AS n_users, sum(stores)::BIGINT AS n_stores,
           sum(messages)::BIGINT AS messages, sum(write_s) AS write_s, sum(save_s) AS save_s,
           sum(calls)::BIGINT AS calls, sum(calls_sent)::BIGINT AS calls_sent,
           sum(ledger_hits)::BIGINT AS ledger_hits, sum(failed_calls)::BIGINT AS failed_calls,
           sum(unpriced_calls)::BIGINT AS unpriced_calls,
           CASE WHEN count(prompt_tokens) = count(*) THEN sum(prompt_tokens)::BIGINT END
               AS prompt_tokens,
           CASE WHEN count(completion_tokens) = count(*) THEN sum(completion_tokens)::BIGINT END
               AS completion_tokens,
           CASE WHEN count(work_usd) = count(*) THEN sum(work_usd) END AS work_usd,
           CASE WHEN count(paid_usd) = count(*) THEN sum(paid_usd) END AS paid_usd,
           sum(replayed_s) AS replayed_s
    FROM ingestion_by_user
    GROUP BY ALL
)
SELECT s.system, s.n_users, a.n AS n_users_total, s.n_stores, s.messages,
       s.calls, s.calls_sent, s.ledger_hits, s.failed_calls, s.unpriced_calls,
       s.prompt_tokens, s.completion_tokens,
       s.work_usd, s.paid_usd, s.write_s, s.save_s, s.replayed_s,
       s.calls / s.messages AS calls_per_message,
       s.prompt_tokens / s.messages AS prompt_tokens_per_message,
       s.completion_tokens / s.messages AS completion_tokens_per_message,
       s.write_s / s.messages AS seconds_per_message,
       s.work_usd / s.n_stores AS work_usd_per_user,
       1000 * s.work_usd / s.messages AS work_usd_per_1000_messages
FROM summed s
JOIN attempted a USING (system)
ORDER BY s.system;
