-- query, line 2, column 40: a sliding window's slide (10 s) must not exceed its size (5 s), otherwise tuples between windows would be dropped
SELECT count(*) AS n FROM train WINDOW SLIDING(ts, 5 s, 10 s) INTO alerts
