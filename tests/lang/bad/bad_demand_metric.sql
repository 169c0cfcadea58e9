-- query, line 2, column 40: no metric 'latancy'; known metrics: latency, energy, frequency, hops, load, network_usage, overhead, price
SELECT * FROM train INTO alerts DEMAND latancy < 100 ms
