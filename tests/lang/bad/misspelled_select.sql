-- query, line 2, column 1: expected SELECT, CREATE STREAM, CREATE SINK or CREATE QUERY, but found 'SELEC'
SELEC * FROM train INTO alerts
