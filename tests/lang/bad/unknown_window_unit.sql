-- query, line 2, column 49: unknown duration unit 'parsecs' in '10 parsecs'; known units: ms, millisecond, milliseconds, s, sec, second, seconds, min, minute, minutes, h, hour, hours, d, day, days
SELECT count(*) AS n FROM train WINDOW TUMBLING(10 parsecs) INTO alerts
