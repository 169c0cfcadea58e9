-- query, line 2, column 47: a join needs an equality between its two sides in ON; without one, use a conjunction (AND)
SELECT * FROM train AS a JOIN vehicle AS b ON a.speed < b.speed WITHIN 10 s INTO alerts
