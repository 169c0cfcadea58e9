-- query, line 2, column 54: expected WITHIN 10 s, the time bound of a conjunction, but found 'INTO'
SELECT * FROM train AS a, weather AS b MATCH a AND b INTO alerts
