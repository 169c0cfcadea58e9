-- query, line 2, column 27: < over speed (double), 'fast' (string): double and string have no common type; use CAST
SELECT * FROM train WHERE speed < 'fast' INTO alerts
