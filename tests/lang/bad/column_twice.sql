-- query, line 2, column 12: column 'id' appears twice; give one of them another name with AS
SELECT id, speed AS id FROM train INTO alerts
