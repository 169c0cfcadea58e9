-- query, line 2, column 12: avg stands inside another aggregate; compute it in a sub-query first
SELECT max(avg(speed)) AS m FROM train WINDOW TUMBLING(10 s) INTO alerts
