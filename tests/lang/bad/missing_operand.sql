-- query, line 2, column 34: something is missing after '<'
SELECT * FROM train WHERE speed < INTO alerts
