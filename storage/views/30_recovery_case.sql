-- One target of one user, from the truth to the verdict, a row for each system, mode and k.
-- CASE is a keyword, so the name needs its quotes: SELECT * FROM "case"('user_001', 'dimension').
-- case_file is the same without them.
CREATE MACRO case_file(for_user, for_dimension) AS TABLE
WITH v AS (
    SELECT * FROM verdicts WHERE user_id = for_user AND dimension = for_dimension
),
target AS (
    SELECT * FROM targets WHERE user_id = for_user AND dimension = for_dimension
),
asked AS (
    SELECT * FROM tasks WHERE user_id = for_user AND dimension = for_dimension
),
played AS (
    SELECT * FROM episodes WHERE user_id = for_user AND dimension = for_dimension
),
spoken AS (
    SELECT t.system, t.epoch, t.episode,
           list({'turn': t.turn, 'assistant': t.assistant_text, 'feedback': t.feedback_type,
                 'user': t.user_text, 'assistant_call': t.assistant_call,
                 'simulator_call': t.simulator_call} ORDER BY t.turn) AS transcript
    FROM turns t
    SEMI JOIN played p USING (system, epoch, episode)
    WHERE t.user_id = for_user
    GROUP BY ALL
),
found AS (
    SELECT v.system, v.epoch, v.k,
           list({'rank': r.rank, 'item_id': r.item_id, 'content': r.content, 'score': r.score}
                ORDER BY r.rank) AS retrieved
    FROM (SELECT DISTINCT system, epoch, category, k FROM v WHERE access_mode = 'retrieve') v
    JOIN retrievals r
        ON r.system = v.system AND r.epoch = v.epoch AND r.category = v.category AND r.rank <= v.k
    WHERE r.user_id = for_user AND r.dimension = for_dimension
    GROUP BY ALL
),
stored AS (
    SELECT system, epoch, count(*) AS n_stored
    FROM memory_items WHERE user_id = for_user GROUP BY ALL
),
filled AS (
    SELECT * FROM slot_fills WHERE user_id = for_user AND dimension = for_dimension
),
blamed AS (
    SELECT * FROM attributions WHERE user_id = for_user AND dimension = for_dimension
)
SELECT v.user_id, v.category, v.dimension, v.system, v.epoch, v.layer, v.access_mode, v.k,
       target.short AS target_short, target.explanation AS target_explanation,
       coalesce(played.task, asked.task) AS task, played.episode, spoken.transcript,
       found.retrieved, coalesce(stored.n_stored, 0) AS n_stored,
       v.label, v.score, v.status, v.reason, v.detail,
       filled.label_reason, v.judge_reason,
       blamed.label AS attribution, blamed.evidence, blamed.cause_reason,
       filled.call_id AS slot_fill_call, v.call_id AS judge_call,
       blamed.oracle_call, blamed.disclosure_call, blamed.subclass_call
FROM v
LEFT JOIN target ON target.category = v.category
LEFT JOIN asked ON asked.category = v.category
LEFT JOIN played
    ON played.system = v.system AND played.epoch = v.epoch AND played.category = v.category
LEFT JOIN spoken
    ON spoken.system = v.system AND spoken.epoch = v.epoch AND spoken.episode = played.episode
LEFT JOIN found
    ON v.access_mode = 'retrieve' AND found.system = v.system AND found.epoch = v.epoch
    AND found.k IS NOT DISTINCT FROM v.k
LEFT JOIN stored ON stored.system = v.system AND stored.epoch = v.epoch
LEFT JOIN filled
    ON filled.system = v.system AND filled.epoch = v.epoch AND filled.category = v.category
    AND filled.access_mode = v.access_mode AND filled.k IS NOT DISTINCT FROM v.k
    AND filled.layer = v.layer
LEFT JOIN blamed
    ON blamed.system = v.system AND blamed.epoch = v.epoch AND blamed.category = v.category
    AND blamed.access_mode = v.access_mode AND blamed.k IS NOT DISTINCT FROM v.k
    AND blamed.layer = v.layer
ORDER BY v.system, v.epoch, v.layer, v.access_mode, v.k NULLS FIRST;

CREATE MACRO "case"(for_user, for_dimension) AS TABLE
SELECT * FROM case_file(for_user, for_dimension);
