-- query, line 2, column 37: WHERE is written twice
SELECT * FROM train WHERE speed < 3 WHERE speed > 1 INTO alerts
