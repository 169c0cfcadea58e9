-- query, line 2, column 8: count cannot be used here: an aggregate needs a window; add for example WINDOW TUMBLING(10 s)
SELECT count(*) AS n FROM train INTO alerts
