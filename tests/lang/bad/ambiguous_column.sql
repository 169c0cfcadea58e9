-- query, line 2, column 8: column 'id' is ambiguous; write a.id or b.id
SELECT id FROM train AS a JOIN vehicle AS b ON a.id = b.id WITHIN 10 s INTO alerts
