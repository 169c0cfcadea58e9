-- query, line 2, column 36: GROUP BY needs a window; add for example WINDOW TUMBLING(10 s)
SELECT station FROM train GROUP BY station INTO alerts
