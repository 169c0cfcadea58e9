-- query, line 2, column 40: hour cannot be demanded, only asked about: write WHEN hour ... THEN a demand
SELECT * FROM train INTO alerts DEMAND hour < 9
