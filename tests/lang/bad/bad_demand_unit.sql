-- query, line 2, column 50: latency '100' has no unit; write one of ms, millisecond, milliseconds, s, sec, second, seconds, min, minute, minutes, h, hour, hours, d, day, days
SELECT * FROM train INTO alerts DEMAND latency < 100
