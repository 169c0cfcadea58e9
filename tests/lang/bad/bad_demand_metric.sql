-- query, line 2, column 40: no metric 'latancy'; known metrics: latency, frequency, hops, load, network_usage, overhead
SELECT * FROM train INTO alerts DEMAND latancy < 100 ms
