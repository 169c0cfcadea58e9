-- query, line 2, column 59: no churn lies between 9 and 3; write the smaller number first
SELECT * FROM train INTO alerts DEMAND WHEN churn BETWEEN 9 AND 3 THEN hops < 3
