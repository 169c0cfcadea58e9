-- query, line 2, column 59: expected WITHIN 10 s or WINDOW TUMBLING(10 s), the time bound of a join, but found 'INTO'
SELECT * FROM train AS a JOIN vehicle AS b ON a.id = b.id INTO alerts
