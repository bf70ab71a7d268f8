-- The stores held against any window: SELECT * FROM window_share(128000).
-- An overflowing store could not be read whole by such a reader; it would not score 0.
CREATE MACRO window_share(window_tokens) AS TABLE
SELECT system, count(tokens) AS n_stores, min(tokenizer) AS tokenizer,
       avg(tokens) AS tokens_mean, max(tokens) AS tokens_max,
       avg(tokens) / window_tokens AS share_mean, max(tokens) / window_tokens AS share_max,
       count(*) FILTER (tokens > 0 AND tokens + 1024 > window_tokens) AS n_overflow
FROM store_footprint
GROUP BY system
ORDER BY system;
