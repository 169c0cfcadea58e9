-- query, line 2, column 60: MATCH does not use c; every input must be in the pattern
SELECT * FROM train AS a, weather AS b, vehicle AS c MATCH a THEN b WITHIN 10 s INTO alerts
