-- query, line 2, column 27: an expression is missing here
SELECT * FROM train WHERE INTO alerts
