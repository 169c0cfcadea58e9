-- query, line 2, column 21: user function 'enrich' must be written module:function, such as fleet.rules:enrich
SELECT * FROM APPLY('enrich', train) RETURNS (id bigint) INTO alerts
