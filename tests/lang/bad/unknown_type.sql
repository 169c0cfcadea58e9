-- query, line 2, column 22: no type 'dubble'; known types: double, array<double>, bigint, binary, boolean, date, float, int and 2 more
SELECT CAST(speed AS dubble) AS s FROM train INTO alerts
