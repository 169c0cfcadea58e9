"""The queries of the demo: a filter, two windows, a join and a sequence over trains and weather; and some to try."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

QUERIES: Mapping[str, str] = MappingProxyType(
    {
        "slow_trains": """\
SELECT *
FROM train
WHERE speed < 3 AND passengers > 200
INTO alerts
DEMAND latency < 10 s
""",
        "station_load": """\
SELECT window_start, station, count(*) AS reports, avg(passengers) AS passengers, max(speed) * 3.6 AS top_kmh
FROM train
GROUP BY station WINDOW TUMBLING(ts, 5 s)
INTO dashboard
DEMAND latency < 10 s, network_usage < 100 kB
""",
        "full_trains": """\
SELECT window_end, id, avg(passengers) AS mean
FROM train
WHERE passengers > 150
GROUP BY id WINDOW SLIDING(ts, 10 s, 5 s)
HAVING mean > 200
INTO alerts
DEMAND latency < 10 s
""",
        "trains_in_wind": """\
SELECT t.id, t.station, t.speed, w.wind
FROM (SELECT * FROM train WHERE speed > 15) AS t
JOIN (SELECT * FROM weather WHERE wind > 8) AS w
  ON t.station = w.station WITHIN 3 s
INTO alerts
DEMAND latency < 10 s, hops <= 6
""",
        "departures": """\
SELECT stands.id, stands.station, moves.speed
FROM (SELECT * FROM train WHERE speed = 0) AS stands,
     (SELECT * FROM train WHERE speed > 0 AND speed < 1) AS moves
MATCH stands THEN moves WITHIN 400 ms
WHERE stands.id = moves.id
INTO dashboard
""",
    }
)
"""Name to SQL; these run from the beginning."""

BY_NOVA: Mapping[str, str] = MappingProxyType(
    {
        "passengers": """\
SELECT window_end, sum(passengers) AS passengers, max(speed) * 3.6 AS top_kmh, count(*) AS reports
FROM train
WINDOW TUMBLING(ts, 5 s)
INTO dashboard
WITH (mechanism = 'nova', fan_in = '6')
""",
    }
)
"""The same for a query that Nova places, as a tree: each six trains have a node that adds up, which follows them."""

SAMPLES: tuple[tuple[str, str], ...] = (
    (
        "Fast trains",
        """\
SELECT id, station, speed * 3.6 AS kmh
FROM train
WHERE speed > 21
INTO alerts
DEMAND latency < 2 s
""",
    ),
    (
        "Passengers in all trains",
        """\
SELECT window_end, sum(passengers) / count(*) AS per_train, approx_count_distinct(id) AS trains
FROM train
WINDOW TUMBLING(ts, 5 s)
INTO dashboard
""",
    ),
    (
        "Wind at each station",
        """\
SELECT window_end, station, max(wind) AS strongest
FROM weather
GROUP BY station WINDOW SLIDING(ts, 20 s, 10 s)
INTO dashboard
""",
    ),
    (
        "Cold and windy trains",
        """\
SELECT t.id, t.station, w.temperature, w.wind
FROM train AS t
JOIN weather AS w ON t.station = w.station AND w.temperature < 10 AND w.wind > 10 WITHIN 1 s
INTO alerts
""",
    ),
)
"""Title and text; the page offers them."""
