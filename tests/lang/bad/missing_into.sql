-- query, line 2, column 20: the query does not say where its results go; add INTO and a sink; known sinks: alerts, archive, dashboard
SELECT * FROM train
