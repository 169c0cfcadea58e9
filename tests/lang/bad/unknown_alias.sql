-- query, line 2, column 8: no alias 't'; known aliases: a
SELECT t.id FROM train AS a INTO alerts
