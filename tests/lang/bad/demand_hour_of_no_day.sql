-- query, line 2, column 58: hour is a whole number from 0 to 23, not 25
SELECT * FROM train INTO alerts DEMAND WHEN hour BETWEEN 7 AND 25 THEN hops < 3
