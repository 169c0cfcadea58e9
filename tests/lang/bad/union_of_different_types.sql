-- query, line 2, column 32: union input 2 has columns (road string), but input 1 has (id bigint); select the same types in the same order on every side
SELECT id FROM train UNION ALL SELECT road FROM vehicle INTO alerts
