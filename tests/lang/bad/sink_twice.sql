-- query, line 2, column 34: sink 'alerts' is named twice
SELECT * FROM train INTO alerts, alerts
