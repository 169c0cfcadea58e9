-- query, line 2, column 11: expected FROM, but found 'INTO'
SELECT id INTO alerts
