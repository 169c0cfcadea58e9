-- query, line 2, column 48: expected one of < <= = >= > after latency, but found 'about'
SELECT * FROM train INTO alerts DEMAND latency about 100 ms
