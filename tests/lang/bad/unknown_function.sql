-- query, line 2, column 8: no function 'averag'; known functions: avg, overlay, abs, acos, acosh, add_months, approx_count_distinct, array and 219 more
SELECT averag(speed) AS mean FROM train INTO alerts
