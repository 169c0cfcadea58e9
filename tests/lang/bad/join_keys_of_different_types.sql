-- query, line 2, column 47: join keys 'passengers' (int) and 'id' (bigint) have different types; use CAST in a projection
SELECT * FROM train AS a JOIN vehicle AS b ON a.passengers = b.id WITHIN 10 s INTO alerts
