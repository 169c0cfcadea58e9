-- query, line 2, column 15: stream 'train' exists already; give this one another name
CREATE STREAM train (ts timestamp)
