-- Section: dwell

-- Times in states have the bounds 0.1 s x 4^k, 14 of them, instead of 11 others (ADR 0162). What was counted in an old
-- bucket counts in the first new one whose bound is not smaller. No two old buckets fall together. In two steps, by way
-- of negative numbers, because a row must not get the number of one that is changed after it.
UPDATE state_dwell SET bucket = -1 - CASE bucket
  WHEN 0 THEN 0 WHEN 1 THEN 2 WHEN 2 THEN 4 WHEN 3 THEN 5 WHEN 4 THEN 7 WHEN 5 THEN 8
  WHEN 6 THEN 9 WHEN 7 THEN 10 WHEN 8 THEN 11 WHEN 9 THEN 12 WHEN 10 THEN 13 ELSE 14 END;
UPDATE state_dwell SET bucket = -1 - bucket;
