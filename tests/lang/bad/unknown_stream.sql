-- query, line 2, column 15: no stream 'trian'; known streams: train, vehicle, weather
SELECT * FROM trian INTO alerts
