-- query, line 2, column 26: LEFT is not supported: a pair needs both sides; write JOIN
SELECT * FROM train AS a LEFT JOIN vehicle AS b ON a.id = b.id WITHIN 10 s INTO alerts
