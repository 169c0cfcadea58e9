-- query, line 2, column 17: column 'speed' is neither in GROUP BY nor inside an aggregate; group by it or use first(speed)
SELECT station, speed, count(*) AS n FROM train GROUP BY station WINDOW TUMBLING(10 s) INTO alerts
