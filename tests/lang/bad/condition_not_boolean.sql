-- query, line 2, column 27: WHERE needs a boolean, but speed is double; write a comparison
SELECT * FROM train WHERE speed INTO alerts
