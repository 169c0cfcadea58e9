-- query, line 2, column 28: max cannot be used here: a condition on an aggregate is written after HAVING
SELECT id FROM train WHERE max(speed) > 30 INTO alerts
