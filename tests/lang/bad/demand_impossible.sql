-- query, line 2, column 40: nothing meets hops < 0, as it is at least 0 always; change the bound
SELECT * FROM train INTO alerts DEMAND hops < 0
