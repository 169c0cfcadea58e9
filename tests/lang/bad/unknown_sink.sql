-- query, line 2, column 26: no sink 'alert'; known sinks: alerts, archive, dashboard
SELECT * FROM train INTO alert
