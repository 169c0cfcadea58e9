-- query, line 2, column 57: latency > 100 ms contradicts latency < 50 ms; leave one out or give them conditions (WHEN) that exclude each other
SELECT * FROM train INTO alerts DEMAND latency < 50 ms, latency > 0.1 s
