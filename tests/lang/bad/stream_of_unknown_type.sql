-- query, line 2, column 41: no type 'dubble'; known types: double, array<double>, bigint, binary, boolean, date, float, int and 2 more
CREATE STREAM tram (ts timestamp, speed dubble)
