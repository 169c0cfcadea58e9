-- query, line 2, column 8: no function 'averag'; known functions: avg, abs, acos, approx_count_distinct, array, array_contains, asin, atan and 73 more
SELECT averag(speed) AS mean FROM train INTO alerts
