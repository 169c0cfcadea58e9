-- query, line 2, column 8: + takes a number, a number, but got speed (double), station (string); use CAST or other columns
SELECT speed + station AS s FROM train INTO alerts
