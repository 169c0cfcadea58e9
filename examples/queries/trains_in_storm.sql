-- Trains at stations with strong wind: a join on the station, with readings at most a minute apart.
SELECT t.id, t.station, t.speed, w.wind
FROM train AS t
JOIN (SELECT ts, station, wind FROM weather WHERE wind > 20) AS w
  ON t.station = w.station AND t.speed > w.wind
  WITHIN 1 min
INTO alerts
DEMAND latency < 500 ms
