-- query, line 2, column 32: 'yesterday' is not a timestamp; write it like '2026-03-01 12:30:00'
SELECT * FROM train WHERE ts > 'yesterday' INTO alerts
