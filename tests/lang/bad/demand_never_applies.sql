-- query, line 2, column 40: hops < 4 WHEN hour = 3 UNLESS hour < 5 never applies: its conditions exclude each other
SELECT * FROM train INTO alerts DEMAND hops < 4 WHEN hour = 3 UNLESS hour < 5
