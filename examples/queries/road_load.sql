-- How busy is each road? One result for each road and ten seconds, also when tuples come up to five seconds late.
SELECT window_start, road, count(*) AS vehicles, avg(speed) * 3.6 AS mean_kmh, top_k(speed, 3) AS fastest
FROM vehicle
WHERE lane > 0
GROUP BY road WINDOW TUMBLING(ts, 10 s) ALLOW LATENESS 5 s
HAVING vehicles > 20
INTO dashboard, archive
DEMAND latency < 1 s WEIGHT 2, network_usage < 1 MB
