-- Into how many parts each store was cut for the chunked reading of dump_all; 1 where it fits.
CREATE VIEW store_parts AS
SELECT system, user_id, epoch, max(n_parts) FILTER (step = 0) AS n_parts,
       count(*) FILTER (step > 0) AS n_merges,
       max(prompt_tokens) FILTER (step = 0) AS prompt_tokens_max
FROM slot_fill_parts
GROUP BY ALL
ORDER BY system, user_id, epoch;

-- The whole reading of dump_all (layer base) and the chunked one beside it. `n_parts` are of stores
-- that were read; a store that the whole reading overflows is counted in `n_overflow` by targets.
CREATE VIEW dump_readers AS
WITH parts AS (
    SELECT system, count(n_parts) AS n_stores,
           count(*) FILTER (n_parts > 1) AS n_in_parts,
           avg(n_parts) AS parts_mean, max(n_parts) AS parts_max,
           sum(n_merges)::BIGINT AS n_merges
    FROM store_parts
    GROUP BY ALL
),
lost AS (
    SELECT layer, system, count(*) FILTER (reason = 'store_overflow') AS n_overflow
    FROM verdicts WHERE access_mode = 'dump_all' GROUP BY ALL
),
blamed AS (
    SELECT layer, system,
           count(*) FILTER (label = 'ok')
               / nullif(count(*) FILTER (label IN ('ok', 'memory_failure')), 0) AS recovery_rate
    FROM attributions WHERE access_mode = 'dump_all' GROUP BY ALL
)
SELECT s.system, CASE s.layer WHEN 'base' THEN 'whole' ELSE s.layer END AS reader,
       s.n_users, s.n_scored, s.n_total, s.b_mean, s.b_lo, s.b_hi,
       b.recovery_rate, l.n_overflow,
       CASE WHEN s.layer = 'chunked' THEN p.n_stores END AS n_stores,
       CASE WHEN s.layer = 'chunked' THEN p.n_in_parts END AS n_in_parts,
       CASE WHEN s.layer = 'chunked' THEN p.parts_mean END AS parts_mean,
       CASE WHEN s.layer = 'chunked' THEN p.parts_max END AS parts_max,
       CASE WHEN s.layer = 'chunked' THEN p.n_merges END AS n_merges
FROM recovery_summary_layers s
LEFT JOIN parts p USING (system)
LEFT JOIN lost l ON l.layer = s.layer AND l.system = s.system
LEFT JOIN blamed b ON b.layer = s.layer AND b.system = s.system
WHERE s.access_mode = 'dump_all' AND s.layer IN ('base', 'chunked')
ORDER BY s.system, reader DESC;
