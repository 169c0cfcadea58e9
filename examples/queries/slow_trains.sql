-- Trains that crawl, as an alert within a tenth of a second.
-- One filter and one projection: both can run on the train itself.
SELECT id, station, speed * 3.6 AS kmh
FROM train
WHERE speed < 5 AND passengers > 0
INTO alerts
DEMAND latency < 100 ms, hops <= 3
