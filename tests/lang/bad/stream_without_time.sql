-- query, line 2, column 15: stream 'tram' has no timestamp column; say which column is its time with EVENT TIME column
CREATE STREAM tram (id bigint, speed double)
