-- query, line 3, column 53: expected WITHIN 10 s or WINDOW TUMBLING(10 s), the time bound of a join, but found 'INTO'
SELECT a.id FROM train AS a JOIN vehicle AS b
ON a.id = b.id AND b.ts > a.ts - INTERVAL 5 MINUTES INTO alerts
