-- query, line 2, column 11: a parenthesis is opened here, but never closed
SELECT abs(speed AS s FROM train INTO alerts
