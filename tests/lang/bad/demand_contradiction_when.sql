-- query, line 3, column 82: latency >= 1000 ms WHEN hour = 9 contradicts latency < 50 ms WHEN hour BETWEEN 7 AND 9; leave one out or give them conditions (WHEN) that exclude each other
SELECT * FROM train INTO alerts
DEMAND WHEN hour BETWEEN 7 AND 9 THEN latency < 50 ms OTHERWISE overhead < 1 MB, latency >= 1 s WHEN hour = 9
