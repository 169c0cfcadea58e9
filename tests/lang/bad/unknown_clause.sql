-- query, line 2, column 27: expected INTO (or another clause), but found 'speed'
SELECT * FROM train WEHRE speed < 3 INTO alerts
