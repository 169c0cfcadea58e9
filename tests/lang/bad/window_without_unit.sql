-- query, line 2, column 53: duration '10' has no unit; write one of ms, millisecond, milliseconds, s, sec, second, seconds, min, minute, minutes, h, hour, hours, d, day, days
SELECT count(*) AS n FROM train WINDOW TUMBLING(ts, 10) INTO alerts
