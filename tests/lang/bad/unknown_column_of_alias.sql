-- query, line 2, column 8: no column 'a.wind'; known columns: id, passengers, speed, station, ts
SELECT a.wind FROM train AS a JOIN weather AS b ON a.station = b.station WITHIN 10 s INTO alerts
