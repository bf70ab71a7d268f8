-- Paradigms: every probe that was to be answered, in each layer, scorer, system and mode. One
-- that broke off without a verdict was attempted all the same and is an error; a probe without
-- gold (a skip) is neither verdict nor error. A partial verdict counts as wrong.
CREATE VIEW probe_results AS
WITH modes AS (
    SELECT DISTINCT layer, scorer, system, access_mode, k FROM probe_verdicts
),
epochs AS (
    SELECT DISTINCT layer, scorer, epoch FROM probe_verdicts
)
SELECT m.layer, m.scorer, m.system, m.access_mode, m.k, p.user_id, e.epoch, p.probe_index,
       p.probe_type, p.paradigm, p.condition, p.domain, p.expected, p.split, p.group_id,
       p.fact_type, v.match, v.parts_json, v.why,
       coalesce(v.status = 'scored' AND v.match IN ('correct', 'partial', 'incorrect'), false)
           AS scored,
       CASE WHEN v.system IS NULL THEN true
            WHEN v.status = 'scored' THEN coalesce(v.match = 'execution_error', false)
            ELSE v.match IS DISTINCT FROM 'skip'
       END AS failed,
       coalesce(v.match = 'correct', false) AS correct,
       v.reason, v.detail, v.call_id
FROM modes m
JOIN epochs e USING (layer, scorer)
CROSS JOIN probes p
LEFT JOIN probe_verdicts v
    ON v.layer = m.layer AND v.scorer = m.scorer AND v.system = m.system
    AND v.access_mode = m.access_mode AND v.k IS NOT DISTINCT FROM m.k
    AND v.user_id = p.user_id AND v.epoch = e.epoch AND v.probe_type = p.probe_type;

-- A store that holds nothing has no memories; an imported one is known by its items only.
CREATE VIEW probe_stores AS
WITH stores AS (
    SELECT system, user_id, epoch FROM ingests
    UNION
    SELECT system, user_id, epoch FROM memory_items
),
held AS (
    SELECT system, user_id, epoch, count(*) AS items FROM memory_items GROUP BY ALL
)
SELECT s.system, s.user_id, s.epoch, coalesce(h.items, 0) AS n_memories
FROM stores s
LEFT JOIN held h USING (system, user_id, epoch)
SEMI JOIN probes p USING (user_id);

-- The interval is the stored bootstrap over episodes; it is shown only while it belongs to
-- these verdicts.
CREATE VIEW probe_summary_layers AS
WITH rates AS (
    SELECT layer, system, access_mode, k, scorer,
           avg(correct::INTEGER) FILTER (scored) AS accuracy,
           avg((match = 'partial')::INTEGER) FILTER (scored) AS partial,
           avg(correct::INTEGER) FILTER (scored AND expected = 'should_update') AS plasticity,
           avg(correct::INTEGER) FILTER (scored AND expected = 'should_preserve') AS stability,
           count(*) FILTER (scored) AS n,
           count(*) FILTER (failed) AS n_errors,
           count(*) FILTER (scored OR failed) AS n_total,
           count(DISTINCT user_id) AS n_episodes
    FROM probe_results
    GROUP BY ALL
),
sizes AS (
    SELECT system, avg(n_memories) AS n_memories FROM probe_stores GROUP BY ALL
)
SELECT r.layer, r.system, r.access_mode, r.k, r.scorer,
       r.accuracy, m.lo AS accuracy_lo, m.hi AS accuracy_hi, r.partial,
       r.plasticity, r.stability,
       1 - r.plasticity AS under_update, 1 - r.stability AS over_update,
       CASE WHEN r.plasticity + r.stability = 0 THEN 0.0
            ELSE 2 * r.plasticity * r.stability / (r.plasticity + r.stability)
       END AS sp_balance,
       r.n, r.n_errors, r.n_total, r.n_episodes, s.n_memories
FROM rates r
LEFT JOIN sizes s USING (system)
LEFT JOIN probe_metrics m
    ON m.metric = 'accuracy' AND m.group_kind = ''
    AND m.layer = r.layer AND m.scorer = r.scorer AND m.system = r.system
    AND m.access_mode = r.access_mode AND m.k IS NOT DISTINCT FROM r.k
    AND m.n = r.n AND m.n_total = r.n_total AND abs(m.value - r.accuracy) < 1e-9
ORDER BY r.layer, r.scorer DESC, r.accuracy DESC NULLS LAST, r.system, r.access_mode,
         r.k NULLS FIRST;

CREATE VIEW probe_summary AS
SELECT * EXCLUDE (layer) FROM probe_summary_layers WHERE layer = 'base';

CREATE VIEW probe_by_type AS
SELECT system, access_mode, k, scorer, probe_type,
       avg(correct::INTEGER) FILTER (scored) AS accuracy,
       avg((match = 'partial')::INTEGER) FILTER (scored) AS partial,
       count(*) FILTER (scored) AS n,
       count(*) FILTER (failed) AS n_errors
FROM probe_results
WHERE layer = 'base'
GROUP BY ALL
ORDER BY system, access_mode, k NULLS FIRST, scorer DESC, probe_type;

CREATE VIEW probe_by_paradigm AS
SELECT system, access_mode, k, scorer, paradigm,
       avg(correct::INTEGER) FILTER (scored) AS accuracy,
       avg((match = 'partial')::INTEGER) FILTER (scored) AS partial,
       avg(correct::INTEGER) FILTER (scored AND expected = 'should_update') AS plasticity,
       avg(correct::INTEGER) FILTER (scored AND expected = 'should_preserve') AS stability,
       count(*) FILTER (scored) AS n,
       count(*) FILTER (failed) AS n_errors
FROM probe_results
WHERE layer = 'base'
GROUP BY ALL
ORDER BY system, access_mode, k NULLS FIRST, scorer DESC, paradigm;

-- Failure by side of the memory; `share` is that of all diagnosed wrong answers.
CREATE VIEW probe_failures_summary AS
WITH counted AS (
    SELECT system, access_mode, k, scorer, failure, side, count(*) AS n
    FROM probe_failures
    WHERE layer = 'base'
    GROUP BY ALL
)
SELECT *, n / sum(n) OVER (PARTITION BY system, access_mode, k, scorer) AS share
FROM counted
ORDER BY system, access_mode, k NULLS FIRST, scorer DESC, n DESC, failure, side;

-- Answers that the corrected and the published rules judge differently.
CREATE VIEW probe_changed_verdicts AS
SELECT s.layer, s.system, s.access_mode, s.k, s.user_id, s.epoch, s.probe_type,
       p.paradigm, p.condition, p.question, p.gold_answer, a.answer_json,
       coalesce(s.match, s.reason) AS strict_match, coalesce(o.match, o.reason) AS paper_match,
       s.why AS strict_why, o.why AS paper_why, s.call_id
FROM probe_verdicts s
JOIN probe_verdicts o
    ON s.scorer = 'strict' AND o.scorer = 'paper' AND s.layer = o.layer
    AND s.system = o.system AND s.user_id = o.user_id AND s.epoch = o.epoch
    AND s.access_mode = o.access_mode AND s.k IS NOT DISTINCT FROM o.k
    AND s.probe_type = o.probe_type
LEFT JOIN probes p ON p.user_id = s.user_id AND p.probe_type = s.probe_type
LEFT JOIN answers a
    ON a.layer = s.layer AND a.system = s.system AND a.user_id = s.user_id
    AND a.epoch = s.epoch AND a.access_mode = s.access_mode AND a.k IS NOT DISTINCT FROM s.k
    AND a.probe_type = s.probe_type
WHERE s.match IS DISTINCT FROM o.match
ORDER BY s.layer, s.system, s.access_mode, s.k NULLS FIRST, s.user_id, s.epoch, s.probe_type;

-- One probe from the question to the verdicts:
-- SELECT * FROM probe_case WHERE user_id = 'int_01a' AND probe_type = 'change'.
CREATE VIEW probe_case AS
WITH judged AS (
    SELECT layer, system, user_id, epoch, access_mode, k, probe_type,
           any_value(call_id) AS call_id,
           max(match) FILTER (scorer = 'strict') AS strict_match,
           max(why) FILTER (scorer = 'strict') AS strict_why,
           max(parts_json) FILTER (scorer = 'strict') AS strict_parts,
           max(match) FILTER (scorer = 'paper') AS paper_match,
           max(why) FILTER (scorer = 'paper') AS paper_why,
           max(parts_json) FILTER (scorer = 'paper') AS paper_parts,
           max(reason) AS reason, max(detail) AS detail
    FROM probe_verdicts
    GROUP BY ALL
),
blamed AS (
    SELECT layer, system, user_id, epoch, access_mode, k, probe_type,
           max(failure) FILTER (scorer = 'strict') AS strict_failure,
           max(side) FILTER (scorer = 'strict') AS strict_side,
           max(failure) FILTER (scorer = 'paper') AS paper_failure,
           max(side) FILTER (scorer = 'paper') AS paper_side,
           coalesce(max(evidence) FILTER (scorer = 'strict'), max(evidence)) AS evidence,
           coalesce(max(item_ids_json) FILTER (scorer = 'strict'), max(item_ids_json))
               AS item_ids_json
    FROM probe_failures
    GROUP BY ALL
),
found AS (
    SELECT v.system, v.user_id, v.epoch, v.probe_type, v.k,
           list({'rank': r.rank, 'item_id': r.item_id, 'content': r.content, 'score': r.score}
                ORDER BY r.rank) AS retrieved
    FROM (
        SELECT DISTINCT system, user_id, epoch, probe_type, k
        FROM probe_verdicts WHERE access_mode = 'retrieve'
    ) v
    JOIN retrievals r
        ON r.system = v.system AND r.user_id = v.user_id AND r.epoch = v.epoch
        AND r.dimension = v.probe_type AND r.rank <= v.k
    GROUP BY ALL
)
SELECT j.user_id, j.probe_type, j.system, j.epoch, j.layer, j.access_mode, j.k,
       p.paradigm, p.condition, p.domain, p.expected, p.split, p.question, p.gold_answer,
       a.answer_json, a.n_items, a.prompt_tokens,
       j.strict_match, j.strict_why, j.strict_parts, j.paper_match, j.paper_why, j.paper_parts,
       j.reason, j.detail,
       b.strict_failure, b.strict_side, b.paper_failure, b.paper_side, b.evidence,
       b.item_ids_json, f.retrieved, coalesce(s.n_memories, 0) AS n_stored,
       a.call_id AS reader_call, j.call_id AS verdict_call
FROM judged j
LEFT JOIN probes p ON p.user_id = j.user_id AND p.probe_type = j.probe_type
LEFT JOIN answers a
    ON a.layer = j.layer AND a.system = j.system AND a.user_id = j.user_id
    AND a.epoch = j.epoch AND a.access_mode = j.access_mode AND a.k IS NOT DISTINCT FROM j.k
    AND a.probe_type = j.probe_type
LEFT JOIN blamed b
    ON b.layer = j.layer AND b.system = j.system AND b.user_id = j.user_id
    AND b.epoch = j.epoch AND b.access_mode = j.access_mode AND b.k IS NOT DISTINCT FROM j.k
    AND b.probe_type = j.probe_type
LEFT JOIN found f
    ON j.access_mode = 'retrieve' AND f.system = j.system AND f.user_id = j.user_id
    AND f.epoch = j.epoch AND f.k IS NOT DISTINCT FROM j.k AND f.probe_type = j.probe_type
LEFT JOIN probe_stores s
    ON s.system = j.system AND s.user_id = j.user_id AND s.epoch = j.epoch
ORDER BY j.layer, j.system, j.access_mode, j.k NULLS FIRST, j.user_id, j.epoch, p.probe_index;
