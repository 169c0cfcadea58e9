-- query, line 2, column 8: * cannot be used with a window; list the keys and aggregates
SELECT * FROM train WINDOW TUMBLING(10 s) INTO alerts
