-- query, line 2, column 21: ORDER BY is not supported: a stream never ends, so it cannot be ordered; use top_k(column, 3) in a window
SELECT * FROM train ORDER BY speed INTO alerts
