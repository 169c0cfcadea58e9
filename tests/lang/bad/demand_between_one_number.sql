-- query, line 2, column 60: expected AND (BETWEEN takes two numbers), but found 'THEN'
SELECT * FROM train INTO alerts DEMAND WHEN hour BETWEEN 7 THEN hops < 3
