-- query, line 2, column 31: two inputs are called 'a'; give one of them another name with AS
SELECT * FROM train AS a JOIN vehicle AS a ON a.id = a.id WITHIN 10 s INTO alerts
