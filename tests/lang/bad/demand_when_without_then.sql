-- query, line 2, column 53: expected THEN (what is demanded when the condition holds), but found ','
SELECT * FROM train INTO alerts DEMAND WHEN hour < 9, hops < 3
