-- query, line 2, column 27: LENGTH takes a string or binary, but got speed (double); use CAST or other columns
SELECT * FROM train WHERE length(speed) > 3 INTO alerts
