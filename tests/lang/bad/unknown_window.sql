-- query, line 2, column 40: no window 'TUMBLNG'; known windows: TUMBLING, COUNT, SESSION, SLIDING
SELECT count(*) AS n FROM train WINDOW TUMBLNG(10 s) INTO alerts
