-- query, line 2, column 49: 'station' is not the event time of this input; write 'ts'
SELECT count(*) AS n FROM train WINDOW TUMBLING(station, 10 s) INTO alerts
