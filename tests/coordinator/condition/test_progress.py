"""Time that stands still because one source gives nothing is seen; time that has no reason to move is not."""

from __future__ import annotations

from collections.abc import Sequence

from meander.coordinator.condition.progress import QUIET_MS, EventTimeProgress, source_watermarks
from meander.lang import sql
from meander.model.events import QueryAdded
from meander.model.ids import ChannelId, OperatorId, QueryId
from meander.model.operators import Source
from meander.place.engine import Engine
from meander.place.mechanisms import mechanism
from meander.run.channels.base import ChannelCounters
from meander.run.frames import END
from meander.run.installation import OUTSIDE
from tests.run.harness import SINKS, STREAMS, catalog

Q = QueryId("q")
AGGREGATE, A, B = OperatorId(9), OperatorId(1), OperatorId(2)


def held(seconds: Sequence[tuple[int, int]]) -> list[int]:
    """For how long the query stands still, second by second, of the watermarks of two sources."""
    progress = EventTimeProgress()
    found = []
    for second, (a, b) in enumerate(seconds):
        found.append(progress.read(1_000 * second, {Q: {AGGREGATE: {A: a, B: b}}}).get(Q, (0, A))[0])
    return found


def test_windows_that_wait_for_one_source_are_held_for_as_long_as_the_other_goes_on() -> None:
    assert held([(t, 5) for t in range(5, 9)]) == [0, 0, 1_000, 2_000]
    progress = EventTimeProgress()
    for t in range(3):
        told = progress.read(1_000 * t, {Q: {AGGREGATE: {A: 10 + t, B: 5}}})
    assert told == {Q: (1_000, B)}


def test_time_that_moves_is_not_held_however_far_a_source_is_ahead() -> None:
    assert held([(10**9 + t, t) for t in range(60)]) == [0] * 60


def test_a_query_whose_sources_are_quiet_is_not_held() -> None:
    """The last tuple of one of them, before all fell silent, would otherwise count for ever."""
    quiet = [(7, 5)] * (QUIET_MS // 1_000 + 5)
    assert held([(5, 5), *quiet])[-5:] == [0] * 5


def test_what_was_held_goes_on_when_the_source_is_back() -> None:
    assert held([(5, 5), (6, 5), (9, 5), (10, 10), (11, 11), (12, 12)])[-3:] == [0, 0, 0]


def waiting(text: str, reached: dict[str, int]) -> list[set[str]]:
    """The streams that each aggregate of a query could wait for, when its sources have got so far."""
    world = catalog(100)
    Engine(world, mechanism("bottom_up")).run([QueryAdded(0, q) for q in sql(text, STREAMS, SINKS).queries])
    operators = list(world.plan.serving(QueryId("q")))
    streams = {o: s.stream for o in operators if isinstance(s := world.plan[o].spec, Source)}
    counters = {
        ChannelId(OUTSIDE + o): ChannelCounters(0, 0, 0, 0, reached[stream])
        for o, stream in streams.items()
        if stream in reached
    }
    found = source_watermarks(world.plan, operators, counters)
    return [{streams[o] for o in watermarks} for watermarks in found.values()]


BOTH = {"cars": 7, "rain": 5}
PAIRS = "SELECT b.mm FROM cars AS a JOIN rain AS b ON a.road = b.road WITHIN 1 s"


def test_a_join_was_said_to_wait_for_its_silent_side_although_pairs_wait_for_no_time() -> None:
    """Its demand on latency counted as missed, and it was moved from mechanism to mechanism for nothing."""
    assert waiting(f"CREATE QUERY q AS {PAIRS} INTO one", BOTH) == []


def test_an_aggregate_waits_for_all_sources_that_lead_to_it_and_for_no_others() -> None:
    counted = "SELECT count(*) AS n FROM ({}) GROUP BY mm WINDOW TUMBLING(1 s)"
    assert waiting(f"CREATE QUERY q AS {counted.format(PAIRS)} INTO one", BOTH) == [{"cars", "rain"}]
    alone = "SELECT road, count(*) AS n FROM cars GROUP BY road WINDOW TUMBLING(1 s)"
    beside = f"SELECT a.n, b.mm FROM ({alone}) AS a JOIN rain AS b ON a.road = b.road WITHIN 1 s"
    assert waiting(f"CREATE QUERY q AS {beside} INTO one", BOTH) == [{"cars"}]


def test_nobody_waits_for_a_source_that_has_ended_or_says_what_is_not_known_here() -> None:
    text = f"CREATE QUERY q AS SELECT count(*) AS n FROM ({PAIRS}) GROUP BY mm WINDOW TUMBLING(1 s) INTO one"
    assert waiting(text, {"cars": 7, "rain": END}) == [{"cars"}]  # of which there are two
    assert waiting(text, {"cars": 7}) == []
