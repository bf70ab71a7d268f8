-- Items on which two judges of the same label stand on different sides of 0.75, or half the
-- scale or more apart. The labels of two readings differ and are compared by nobody here.
CREATE VIEW judge_disagreements AS
SELECT p.first, p.second, a.system, a.user_id, a.epoch, a.access_mode, a.k, a.category,
       a.dimension, a.label, a.score AS first_score, b.score AS second_score,
       a.judge_reason AS first_reason, b.judge_reason AS second_reason
FROM (SELECT DISTINCT first, second FROM judge_agreement) p
JOIN verdicts a ON a.layer = p.first
JOIN verdicts b
    ON b.layer = p.second AND a.system = b.system AND a.user_id = b.user_id
    AND a.epoch = b.epoch AND a.access_mode = b.access_mode AND a.k IS NOT DISTINCT FROM b.k
    AND a.category = b.category AND a.dimension = b.dimension
WHERE a.status = 'scored' AND b.status = 'scored' AND a.label = b.label
    AND ((a.score >= 0.75) <> (b.score >= 0.75) OR abs(a.score - b.score) >= 0.5)
ORDER BY abs(a.score - b.score) DESC, p.first, p.second, a.system, a.access_mode, a.k, a.user_id,
         a.epoch, a.category, a.dimension;

-- Verdicts that the label's direction speaks against: half right or more although it says the
-- opposite, or nothing right although it points the same way. The score stays what it is.
CREATE VIEW polarity_conflicts AS
SELECT v.layer, p.method, v.system, v.user_id, v.epoch, v.access_mode, v.k, v.category,
       v.dimension, v.label, v.score, v.judge_reason, p.polarity, p.target_pole, p.label_pole,
       p.target_said, p.label_said
FROM polarity p
JOIN verdicts v
    ON v.system = p.system AND v.user_id = p.user_id AND v.epoch = p.epoch
    AND v.access_mode = p.access_mode AND v.k IS NOT DISTINCT FROM p.k
    AND v.category = p.category AND v.dimension = p.dimension AND v.label = p.label
WHERE v.status = 'scored' AND p.status = 'scored'
    AND (v.score >= 0.5 AND p.polarity = 'opposite' OR v.score = 0 AND p.polarity = 'agrees')
ORDER BY ALL;

CREATE VIEW polarity_summary AS
SELECT v.layer, p.method, v.system, v.access_mode, v.k,
       count(*) AS n_total,
       count(*) FILTER (p.status = 'scored') AS n_scored,
       count(*) FILTER (p.polarity = 'agrees') AS agrees,
       count(*) FILTER (p.polarity = 'opposite') AS opposite,
       count(*) FILTER (p.polarity = 'unclear') AS unclear,
       count(*) FILTER (p.polarity = 'opposite' AND v.score >= 0.5) AS opposite_yet_half_right,
       count(*) FILTER (p.polarity = 'agrees' AND v.score = 0) AS agrees_yet_wrong
FROM polarity p
JOIN verdicts v
    ON v.system = p.system AND v.user_id = p.user_id AND v.epoch = p.epoch
    AND v.access_mode = p.access_mode AND v.k IS NOT DISTINCT FROM p.k
    AND v.category = p.category AND v.dimension = p.dimension AND v.label = p.label
GROUP BY ALL
ORDER BY ALL;
