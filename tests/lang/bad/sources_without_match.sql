-- query, line 2, column 30: expected MATCH (several inputs need a pattern such as MATCH a THEN b WITHIN 10 s, or JOIN), but found 'INTO'
SELECT * FROM train, weather INTO alerts
