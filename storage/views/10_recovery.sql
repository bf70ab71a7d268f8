-- Recovery: B is the mean over users of the unweighted mean of a user's category means,
-- taken over scored items; `n_scored` of `n_total` items could be scored. A user whose unit
-- broke off has no verdicts; its targets were attempted all the same and count in `n_total`.
CREATE VIEW absent_targets AS
WITH absent AS (
    SELECT mode.*, people.user_id
    FROM (SELECT DISTINCT layer, system, access_mode, k FROM verdicts) mode
    CROSS JOIN (SELECT DISTINCT user_id FROM targets) people
    EXCEPT
    SELECT DISTINCT layer, system, access_mode, k, user_id FROM verdicts
)
SELECT a.layer, a.system, a.access_mode, a.k, a.user_id, t.category, count(*) AS n
FROM absent a JOIN targets t USING (user_id)
GROUP BY ALL;

CREATE VIEW user_categories AS
SELECT layer, system, access_mode, k, user_id, category,
       avg(score) FILTER (status = 'scored') AS mean,
       count(*) FILTER (status = 'scored') AS n_scored,
       count(*) AS n_total
FROM verdicts
GROUP BY ALL
UNION ALL
SELECT layer, system, access_mode, k, user_id, category, NULL, 0, n FROM absent_targets;

CREATE VIEW user_recovery AS
SELECT layer, system, access_mode, k, user_id,
       avg(mean) AS b,
       sum(n_scored)::BIGINT AS n_scored,
       sum(n_total)::BIGINT AS n_total
FROM user_categories
GROUP BY ALL;

-- Of an imported turn there may be only the mean over its preferences, in `turn_scores`.
CREATE VIEW user_preference AS
WITH by_turn AS (
    SELECT system, user_id, epoch, episode, turn,
           avg(score) FILTER (status = 'scored') AS score
    FROM preference_scores
    GROUP BY ALL
    UNION ALL
    SELECT system, user_id, epoch, episode, turn, score
    FROM turn_scores
    ANTI JOIN preference_scores USING (system, user_id, epoch, episode, turn)
)
SELECT system, user_id, avg(score) AS d, count(score) AS n_turns_scored, count(*) AS n_turns
FROM by_turn
GROUP BY ALL;

-- A store that holds nothing has no items, but no length of an item either.
CREATE VIEW user_footprint AS
SELECT system, user_id, count(*) AS items, sum(chars) / count(*) AS chars
FROM memory_items
GROUP BY ALL;

CREATE VIEW user_rollout AS
SELECT system, user_id,
       avg(CASE WHEN end_reason = 'satisfied' THEN 1.0 ELSE 0.0 END)
           FILTER (status = 'scored') AS a,
       avg(n_turns) FILTER (status = 'scored') AS c,
       avg(n_turns) FILTER (status = 'scored' AND end_reason = 'satisfied') AS c_satisfied,
       count(*) FILTER (status = 'scored') AS n_scored,
       count(*) AS n_total,
       count(DISTINCT epoch) AS n_stores
FROM episodes
GROUP BY ALL;

-- A store of which an import lost something is unknown; it is no empty and no smaller store.
CREATE VIEW lost_stores AS
SELECT DISTINCT system, user_id, true AS lost
FROM import_issues
WHERE table_name = 'memory_items' AND severity = 'lost' AND user_id <> '';

CREATE VIEW rollout_summary AS
SELECT r.system, count(*) AS n_users,
       sum(r.n_scored)::BIGINT AS n_scored, sum(r.n_total)::BIGINT AS n_total,
       100 * avg(r.a) AS a_pct, avg(r.c) AS c_mean, avg(r.c_satisfied) AS c_satisfied_mean,
       avg(p.d) AS d_mean, avg(coalesce(f.items, 0) / r.n_stores) FILTER (l.lost IS NULL) AS items_mean,
       avg(f.chars) FILTER (l.lost IS NULL) AS chars_mean
FROM user_rollout r
LEFT JOIN user_preference p USING (system, user_id)
LEFT JOIN user_footprint f USING (system, user_id)
LEFT JOIN lost_stores l USING (system, user_id)
GROUP BY ALL
ORDER BY r.system;

-- The interval is the stored cluster bootstrap; it is shown only while it belongs to these scores.
CREATE VIEW recovery_summary_layers AS
WITH b AS (
    SELECT layer, system, access_mode, k, count(b) AS n_users,
           sum(n_scored)::BIGINT AS n_scored, sum(n_total)::BIGINT AS n_total,
           avg(b) AS b_mean, stddev_samp(b) AS b_std
    FROM user_recovery
    GROUP BY ALL
)
SELECT b.layer, b.system, b.access_mode, b.k, b.n_users, b.n_scored, b.n_total,
       b.b_mean, b.b_std, m.lo AS b_lo, m.hi AS b_hi,
       r.a_pct, r.c_mean, r.d_mean, r.items_mean, r.chars_mean
FROM b
LEFT JOIN rollout_summary r USING (system)
LEFT JOIN metrics m
    ON m.metric = 'B' AND m.category IS NULL
    AND m.layer = b.layer AND m.system = b.system AND m.access_mode = b.access_mode
    AND m.k IS NOT DISTINCT FROM b.k
    AND m.n_scored = b.n_scored AND m.n_total = b.n_total AND abs(m.value - b.b_mean) < 1e-9
ORDER BY b.layer, b.access_mode, b.k NULLS FIRST, b.b_mean DESC NULLS LAST, b.system;

CREATE VIEW recovery_summary AS
SELECT * EXCLUDE (layer) FROM recovery_summary_layers WHERE layer = 'base';

CREATE VIEW recovery_by_category_layers AS
SELECT layer, system, access_mode, k, category, count(mean) AS n_users,
       sum(n_scored)::BIGINT AS n_scored, sum(n_total)::BIGINT AS n_total,
       avg(mean) AS b_mean, stddev_samp(mean) AS b_std
FROM user_categories
GROUP BY ALL
ORDER BY layer, system, access_mode, k NULLS FIRST, category;

CREATE VIEW recovery_by_category AS
SELECT * EXCLUDE (layer) FROM recovery_by_category_layers WHERE layer = 'base';

-- Recovery rate: of what the memory was given, the share that could be rebuilt.
CREATE VIEW attribution_counts AS
WITH counted AS (
    SELECT system, access_mode, k, label, count(*) AS n
    FROM attributions
    WHERE layer = 'base'
    GROUP BY ALL
)
SELECT system, access_mode, k, label, n,
       n / sum(n) OVER w AS share,
       coalesce(sum(n) FILTER (label = 'ok') OVER w, 0)
           / nullif(sum(n) FILTER (label IN ('ok', 'memory_failure')) OVER w, 0) AS recovery_rate
FROM counted
WINDOW w AS (PARTITION BY system, access_mode, k)
ORDER BY system, access_mode, k NULLS FIRST, n DESC, label;
