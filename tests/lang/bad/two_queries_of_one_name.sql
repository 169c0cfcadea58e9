-- query, line 3, column 14: query 'slow' exists already; give this one another name
CREATE QUERY slow AS SELECT * FROM train INTO alerts;
CREATE QUERY slow AS SELECT * FROM train INTO alerts
