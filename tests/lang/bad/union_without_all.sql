-- query, line 2, column 28: expected ALL (streams are never deduplicated), but found 'SELECT'
SELECT id FROM train UNION SELECT id FROM vehicle INTO alerts
