-- query, line 2, column 45: no fact 'ohur'; known facts: hour, churn, mobility, weekday, workload
SELECT * FROM train INTO alerts DEMAND WHEN ohur < 9 THEN hops < 3
