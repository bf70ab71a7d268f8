-- Size of the stores. `footprints` is counted once, when a run is scored: its tokens are those
-- of the whole store as a reader is given it, by the tokenizer named beside them. A run that was
-- scored before that has items and characters, and no tokens.
CREATE VIEW store_footprint AS
WITH stores AS (
    SELECT system, user_id, epoch FROM episodes
    UNION
    SELECT system, user_id, epoch FROM ingests
    UNION
    -- Of an imported run of the paradigms suite only the items are known.
    SELECT system, user_id, epoch FROM memory_items SEMI JOIN probes USING (user_id)
),
held AS (
    SELECT system, user_id, epoch, count(*) AS items, sum(chars)::BIGINT AS chars
    FROM memory_items
    GROUP BY ALL
)
SELECT s.system, s.user_id, s.epoch,
       coalesce(h.items, 0) AS items, coalesce(h.chars, 0) AS chars,
       f.tokens, f.tokenizer, f.reader, f.window,
       f.tokens / f.window AS window_share,
       -- What the reader's answer needs is kept free, as when the store is read.
       f.tokens > 0 AND f.tokens + 1024 > f.window AS overflows
FROM stores s
LEFT JOIN held h USING (system, user_id, epoch)
LEFT JOIN footprints f USING (system, user_id, epoch)
ORDER BY ALL;

CREATE VIEW footprint_by_user AS
SELECT system, user_id, count(*) AS n_stores,
       avg(items) AS items, avg(chars) AS chars, avg(tokens) AS tokens,
       min(tokenizer) AS tokenizer, min(reader) AS reader, min("window") AS "window",
       avg(window_share) AS window_share,
       count(*) FILTER (overflows) AS n_overflow
FROM store_footprint
GROUP BY ALL
ORDER BY system, user_id;

-- A user whose rollout broke off has no store: it is in `n_users_total` and in no mean.
CREATE VIEW footprint AS
WITH attempted AS (
    SELECT system, count(DISTINCT user_id) AS n
    FROM (
        SELECT system, user_id FROM verdicts
        UNION ALL SELECT system, user_id FROM episodes
        UNION ALL SELECT system, user_id FROM probe_verdicts
        UNION ALL SELECT system, user_id FROM ingests
        UNION ALL SELECT system, user_id FROM memory_items SEMI JOIN probes USING (user_id)
    )
    GROUP BY ALL
),
largest AS (
    SELECT system, max(tokens) AS tokens, max(window_share) AS window_share
    FROM store_footprint
    GROUP BY ALL
)
SELECT f.system, count(*) AS n_users, any_value(a.n) AS n_users_total,
       sum(f.n_stores)::BIGINT AS n_stores,
       avg(f.items) AS items_mean, avg(f.chars) AS chars_mean, avg(f.tokens) AS tokens_mean,
       any_value(l.tokens) AS tokens_max,
       min(f.tokenizer) AS tokenizer, min(f.reader) AS reader, min(f."window") AS "window",
       avg(f.window_share) AS window_share_mean, any_value(l.window_share) AS window_share_max,
       CASE WHEN min(f."window") IS NOT NULL THEN sum(f.n_overflow)::BIGINT END AS n_overflow
FROM footprint_by_user f
JOIN attempted a USING (system)
JOIN largest l USING (system)
GROUP BY f.system
ORDER BY f.system;
