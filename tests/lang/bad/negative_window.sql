-- query, line 2, column 53: duration '0 s' must be a whole number of milliseconds, at least 1 ms
SELECT count(*) AS n FROM train WINDOW TUMBLING(ts, 0 s) INTO alerts
