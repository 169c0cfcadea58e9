-- query, line 2, column 37: a quote (') is opened here, but never closed
SELECT * FROM train WHERE station = 'west INTO alerts
