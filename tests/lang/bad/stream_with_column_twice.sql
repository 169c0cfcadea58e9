-- query, line 2, column 20: column 'id' appears twice; give one of them another name with AS
CREATE STREAM tram (ts timestamp, id int, id int)
