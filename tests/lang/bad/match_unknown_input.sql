-- query, line 2, column 53: no input 'c'; known inputs: a, b
SELECT * FROM train AS a, weather AS b MATCH a THEN c WITHIN 10 s INTO alerts
