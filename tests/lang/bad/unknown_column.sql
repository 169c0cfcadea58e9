-- query, line 3, column 8: no column 'sped'; known columns: speed, id, passengers, station, ts
SELECT id,
       sped
FROM train INTO alerts
