-- What a reader gets for its tokens: a row for each k that was read, and one for the whole store.
-- `tokens_mean` are the tokens of the memory part of a slot-fill prompt, by the reader's tokenizer,
-- over prompts that hold what the memory gave: a store that is too long counts with its length,
-- a search that failed does not count. A second judge's layer shares the base layer's prompts and
-- has `own_prompts` false.
CREATE VIEW budget_probe AS
WITH prompt AS (
    SELECT layer, system, access_mode, k,
           avg(prompt_tokens) FILTER (n_items > 0 OR status = 'scored') AS tokens_mean,
           avg(n_items) FILTER (n_items > 0 OR status = 'scored') AS items_mean,
           count(prompt_tokens) FILTER (n_items > 0 OR status = 'scored') AS n_prompts,
           count(*) FILTER (reason = 'store_overflow') AS n_overflow
    FROM slot_fills
    GROUP BY ALL
),
own AS (SELECT DISTINCT layer FROM slot_fills)
SELECT s.layer, s.system, s.access_mode, s.k,
       p.tokens_mean, p.items_mean, p.n_prompts,
       s.b_mean, s.b_lo, s.b_hi, s.n_users, s.n_scored, s.n_total,
       s.n_scored / nullif(s.n_total, 0) AS coverage,
       p.n_overflow, o.layer IS NOT NULL AS own_prompts
FROM recovery_summary_layers s
LEFT JOIN own o ON o.layer = s.layer
LEFT JOIN prompt p
    ON p.layer = coalesce(o.layer, 'base') AND p.system = s.system
    AND p.access_mode = s.access_mode AND p.k IS NOT DISTINCT FROM s.k
ORDER BY s.layer, s.system, s.k NULLS LAST, s.access_mode;
