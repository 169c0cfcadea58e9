"""Nexmark: persons, auctions and bids of an auction house, from a seed, and its queries with what they mean in Spark.

The queries are those of the benchmark as Flink's suite writes them, in our dialect. Joins that never end there have a
bound here; the events span less. Beside each stands a query of plain Spark over the whole input, which nothing of ours
takes part in.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from meander.model.schema import Schema
from meander.model.streams import Stream

START_MS = 1_772_366_400_000
"""2026-03-01, 12:00."""
SPAN_MS = 90_000
"""Event time from the first to the last event."""

STREAMS: Mapping[str, Stream] = {
    stream.name: stream
    for stream in (
        Stream("person", Schema.of(ts="timestamp", id="bigint", name="string", city="string", state="string"), "ts"),
        Stream(
            "auction",
            Schema.of(ts="timestamp", id="bigint", item="string", seller="bigint", category="bigint"),
            "ts",
        ),
        Stream(
            "bid",
            Schema.of(
                ts="timestamp",
                auction="bigint",
                bidder="bigint",
                price="bigint",
                channel="string",
                url="string",
                extra="string",
            ),
            "ts",
        ),
    )
}

_CITIES = (("Portland", "OR"), ("Boise", "ID"), ("Los Angeles", "CA"), ("Seattle", "WA"), ("Phoenix", "AZ"))
_CHANNELS = ("Apple", "Google", "Facebook", "Baidu", "channel-7", "channel-31")
FIRST_AUCTION = 1_000


@dataclass(frozen=True)
class NexmarkQuery:
    """A query in our dialect, what it is in Spark over all events, and how it differs from the published one."""

    sql: str
    spark: str
    note: str = ""


def events(seed: int, persons: int = 60, auctions: int = 180, bids: int = 2_700) -> dict[str, pa.Table]:
    """The events of each stream in the order of their times, as in the benchmark 1 : 3 : 46 or so."""
    rng = np.random.default_rng(seed)

    def times(count: int) -> pa.Array:
        stamps = START_MS + np.sort(rng.integers(0, SPAN_MS, count))
        return pa.array(stamps * 1_000, pa.int64()).cast(pa.timestamp("us", "UTC"))

    where = rng.integers(0, len(_CITIES), persons)
    channel = rng.integers(0, len(_CHANNELS), bids)
    hot = rng.random(bids) < 0.5
    auction = np.where(hot, rng.integers(0, 6, bids), rng.integers(0, auctions, bids)) + FIRST_AUCTION
    price = np.exp(rng.normal(9.0, 3.0, bids)).astype(np.int64) + 100
    tables = {
        "person": {
            "ts": times(persons),
            "id": np.arange(persons),
            "name": [f"person {n}" for n in rng.integers(0, 40, persons)],
            "city": [_CITIES[n][0] for n in where],
            "state": [_CITIES[n][1] for n in where],
        },
        "auction": {
            "ts": times(auctions),
            "id": np.arange(auctions) + FIRST_AUCTION,
            "item": [f"item {n}" for n in rng.integers(0, 100, auctions)],
            "seller": rng.integers(0, persons, auctions),
            "category": rng.integers(10, 15, auctions),
        },
        "bid": {
            "ts": times(bids),
            "auction": auction,
            "bidder": rng.integers(0, persons, bids),
            "price": price,
            "channel": [_CHANNELS[n] for n in channel],
            "url": [
                f"https://www.nexmark.com/{_CHANNELS[n].lower()}/item{a % 7}/item.htm?query=1"
                + (f"&channel_id={n}" if n > 3 else "")
                for n, a in zip(channel, auction, strict=True)
            ],
            "extra": ["".join(rng.choice(list("abcdef"), 8)) for _ in range(bids)],
        },
    }
    return {name: pa.table(columns) for name, columns in tables.items()}


_RANKS = """count(*) FILTER (WHERE price < 10000) AS rank1, count(*) FILTER (WHERE price >= 10000 AND price < 1000000)
    AS rank2, count(*) FILTER (WHERE price >= 1000000) AS rank3"""
_BIDDERS = """count(DISTINCT bidder) AS bidders, count(DISTINCT bidder) FILTER (WHERE price < 10000) AS bidders1,
    count(DISTINCT auction) AS auctions, count(DISTINCT auction) FILTER (WHERE price >= 1000000) AS auctions3"""
_TIME_OF_DAY = """CASE WHEN hour(ts) >= 8 AND hour(ts) <= 18 THEN 'dayTime' WHEN hour(ts) <= 6 OR hour(ts) >= 20
    THEN 'nightTime' ELSE 'otherTime' END"""
_ID = "regexp_extract(url, '(&|^)channel_id=([^&]*)', 2)"
_CHANNEL_ID = f"""CASE WHEN lower(channel) = 'apple' THEN '0' WHEN lower(channel) = 'google' THEN '1'
    WHEN lower(channel) = 'facebook' THEN '2' WHEN lower(channel) = 'baidu' THEN '3' ELSE {_ID} END"""
_KNOWN = f"({_ID} != '' OR lower(channel) IN ('apple', 'google', 'facebook', 'baidu'))"

_Q1 = "SELECT auction, bidder, 0.908D * price AS price, ts, extra FROM bid"
_Q2 = "SELECT auction, price FROM bid WHERE mod(auction, 123) = 0"
_Q10 = "SELECT auction, bidder, price, ts, date_format(ts, 'yyyy-MM-dd') AS d, date_format(ts, 'HH:mm') AS m FROM bid"
_Q14 = f"""SELECT auction, bidder, 0.908D * price AS price, {_TIME_OF_DAY} AS time, ts,
    length(extra) - length(replace(extra, 'c', '')) AS cs FROM bid
    WHERE 0.908D * price > 1000000 AND 0.908D * price < 50000000"""
_Q21 = f"SELECT auction, bidder, price, channel, {_CHANNEL_ID} AS id FROM bid WHERE {_KNOWN}"
_Q22 = """SELECT auction, bidder, price, channel, split_part(url, '/', 4) AS dir1, split_part(url, '/', 5) AS dir2,
    split_part(url, '/', 6) AS dir3 FROM bid"""
_Q15 = f"date_format(window_start, 'yyyy-MM-dd') AS day, count(*) AS bids, {_RANKS}, {_BIDDERS}"
_Q16 = f"channel, {_Q15}, max(date_format(ts, 'HH:mm')) AS minute"
_Q17 = f"""auction, date_format(window_start, 'yyyy-MM-dd') AS day, count(*) AS bids, {_RANKS}, min(price) AS low,
    max(price) AS high, avg(price) AS mean, sum(price) AS total"""


def _by_day(items: str, keys: str = "") -> NexmarkQuery:
    grouped = f" GROUP BY {keys}" if keys else ""
    native = items.replace("window_start", "window(ts, '1 day').start")
    return NexmarkQuery(
        f"SELECT {items} FROM bid{grouped} WINDOW TUMBLING(1 d)",
        f"SELECT {native} FROM bid GROUP BY {keys + ', ' if keys else ''}window(ts, '1 day')",
    )


QUERIES: Mapping[str, NexmarkQuery] = {
    "q0": NexmarkQuery("SELECT * FROM bid", "SELECT * FROM bid"),
    "q1": NexmarkQuery(_Q1, _Q1),
    "q2": NexmarkQuery(_Q2, _Q2),
    "q3": NexmarkQuery(
        """SELECT p.name, p.city, p.state, a.id FROM auction AS a JOIN person AS p ON a.seller = p.id WITHIN 10 min
           WHERE a.category = 10 AND p.state IN ('OR', 'ID', 'CA')""",
        """SELECT p.name, p.city, p.state, a.id FROM auction AS a JOIN person AS p ON a.seller = p.id
           WHERE a.category = 10 AND p.state IN ('OR', 'ID', 'CA')""",
        "the join has a bound",
    ),
    "q5": NexmarkQuery(
        """WITH counts AS (SELECT window_end AS we, auction, count(*) AS n FROM bid GROUP BY auction
             WINDOW SLIDING(10 s, 2 s)),
           most AS (SELECT we, max(n) AS n FROM counts GROUP BY we WINDOW TUMBLING(2 s))
           SELECT c.auction, c.n, c.we FROM counts AS c JOIN most AS m ON c.we = m.we AND c.n = m.n WITHIN 2 s""",
        """WITH counts AS (SELECT window(ts, '10 seconds', '2 seconds').end AS we, auction, count(*) AS n FROM bid
             GROUP BY auction, window(ts, '10 seconds', '2 seconds'))
           SELECT auction, n, we FROM (SELECT *, max(n) OVER (PARTITION BY we) AS most FROM counts) WHERE n = most""",
    ),
    "q7": NexmarkQuery(
        """SELECT b.auction, b.price, b.bidder, b.ts FROM bid AS b
           JOIN (SELECT window_end AS we, max(price) AS most FROM bid WINDOW TUMBLING(10 s)) AS m
           ON b.price = m.most AND m.we > b.ts AND m.we <= b.ts + INTERVAL 10 SECONDS""",
        """SELECT auction, price, bidder, ts FROM
           (SELECT *, max(price) OVER (PARTITION BY window(ts, '10 seconds')) AS most FROM bid) WHERE price = most""",
    ),
    "q8": NexmarkQuery(
        """SELECT p.id, p.name, p.we FROM
           (SELECT window_end AS we, id, name FROM person GROUP BY id, name WINDOW TUMBLING(10 s)) AS p
           JOIN (SELECT window_end AS we, seller FROM auction GROUP BY seller WINDOW TUMBLING(10 s)) AS a
           ON p.id = a.seller AND p.we = a.we WITHIN 1 ms""",
        """SELECT DISTINCT p.id, p.name, timestamp_millis((unix_millis(p.ts) DIV 10000 + 1) * 10000) AS we
           FROM person AS p JOIN auction AS a
           ON p.id = a.seller AND unix_millis(p.ts) DIV 10000 = unix_millis(a.ts) DIV 10000""",
    ),
    "q10": NexmarkQuery(_Q10, _Q10),
    "q11": NexmarkQuery(
        "SELECT bidder, count(*) AS n, window_start, window_end FROM bid GROUP BY bidder WINDOW SESSION(2 s)",
        """SELECT bidder, count(*) AS n, session_window(ts, '2 seconds').start, session_window(ts, '2 seconds').end
           FROM bid GROUP BY bidder, session_window(ts, '2 seconds')""",
        "a gap of 2 s for 10 s, as the events span less",
    ),
    "q14": NexmarkQuery(_Q14, _Q14, "the counting function is written with length and replace"),
    "q15": _by_day(_Q15),
    "q16": _by_day(_Q16, "channel"),
    "q17": _by_day(_Q17, "auction"),
    "q20": NexmarkQuery(
        """SELECT b.auction, b.bidder, b.price, a.item, a.seller FROM bid AS b JOIN auction AS a
           ON b.auction = a.id WITHIN 10 min WHERE a.category = 10""",
        """SELECT b.auction, b.bidder, b.price, a.item, a.seller FROM bid AS b JOIN auction AS a
           ON b.auction = a.id WHERE a.category = 10""",
        "the join has a bound",
    ),
    "q21": NexmarkQuery(_Q21, _Q21),
    "q22": NexmarkQuery(_Q22, _Q22),
}

MISSING: Mapping[str, str] = {
    "q4": "a bound of a join that is a column of a tuple (until the auction expires)",
    "q6": "the mean of the last ten rows of a seller (OVER ... ROWS)",
    "q9": "the row with the highest bid, ties by time (ROW_NUMBER); `max_by` gives one column of it",
    "q12": "windows of processing time: results must not depend on when they are computed",
    "q13": "side tables",
    "q18": "the last row of a key without a window (ROW_NUMBER)",
    "q19": "the ten highest rows of a key without a window (ROW_NUMBER)",
}
"""Queries that cannot be written, and what is missing."""
