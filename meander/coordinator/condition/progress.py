"""The time for which the event time of window aggregates has stood still although some of their sources went on.

Windows wait for the slowest of their inputs. When one of them gives nothing, the tuples of the others are read, so no
tuple waits in a channel, and yet nothing comes out. It shows in the watermarks of the sources: one moves, another does
not. Only aggregates wait like that: joins, conjunctions and sequences give a pair as soon as both its tuples are there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from meander.model.global_plan import GlobalPlan
from meander.model.ids import ChannelId, OperatorId, QueryId
from meander.model.operators import Source, WindowAggregate
from meander.run.channels.base import ChannelCounters
from meander.run.frames import END
from meander.run.installation import OUTSIDE

QUIET_MS = 10_000
"""Time without progress of any source after which all are quiet, and nothing counts as waiting."""

SourceWatermarks = Mapping[OperatorId, Mapping[OperatorId, int]]
"""By window aggregate that could wait for one of several sources: the watermarks of those that have not ended."""


def source_watermarks(
    plan: GlobalPlan, operators: Sequence[OperatorId], counters: Mapping[ChannelId, ChannelCounters]
) -> dict[OperatorId, dict[OperatorId, int]]:
    """The watermarks of a query's sources, as far as the sources are on one host."""
    found: dict[OperatorId, dict[OperatorId, int]] = {}
    for operator in operators:
        if operator not in plan.operators or not isinstance(plan[operator].spec, WindowAggregate):
            continue
        sources = list(_sources(plan, operator))
        if any(ChannelId(OUTSIDE + o) not in counters for o in sources):
            continue
        watermarks = {o: counters[ChannelId(OUTSIDE + o)].watermark for o in sources}
        watermarks = {o: watermark for o, watermark in watermarks.items() if watermark < END}
        if len(watermarks) > 1:
            found[operator] = watermarks
    return found


def _sources(plan: GlobalPlan, operator: OperatorId) -> Iterator[OperatorId]:
    """The sources whose tuples get to an operator."""
    seen, stack = {operator}, [operator]
    while stack:
        record = plan[stack.pop()]
        if isinstance(record.spec, Source):
            yield record.id
        fresh = [i for i in record.inputs if i not in seen]
        seen.update(fresh)
        stack.extend(fresh)


@dataclass(slots=True)
class _Track:
    slowest: int
    fastest: int
    """The furthest that a source was seen."""
    base: int
    """The position of the fastest when the slowest moved last."""
    moved_ms: int
    """The time at which a source moved last."""
    since_ms: int | None = None
    """The time at which a source first moved after the slowest had."""


class EventTimeProgress:
    """Compares watermarks with those of earlier readings. Times are any clock's, as long as it is the same one."""

    def __init__(self) -> None:
        self._tracks: dict[tuple[QueryId, OperatorId], _Track] = {}

    def read(
        self, now_ms: int, watermarks: Mapping[QueryId, SourceWatermarks]
    ) -> dict[QueryId, tuple[int, OperatorId]]:
        """Queries whose time stands still: for how long at least, and the source that is the furthest behind."""
        known = {(query, aggregate) for query, seen in watermarks.items() for aggregate in seen}
        self._tracks = {key: track for key, track in self._tracks.items() if key in known}
        found: dict[QueryId, tuple[int, OperatorId]] = {}
        for query, aggregate in sorted(known):
            sources = watermarks[query][aggregate]
            held_ms = self._held_ms((query, aggregate), now_ms, max(sources.values()), min(sources.values()))
            if held_ms > found.get(query, (0, None))[0]:
                found[query] = held_ms, min(sources, key=lambda o: sources[o])
        return found

    def _held_ms(self, key: tuple[QueryId, OperatorId], now_ms: int, fastest: int, slowest: int) -> int:
        track = self._tracks.get(key)
        if track is None or fastest < track.fastest:
            track = self._tracks[key] = _Track(slowest, fastest, fastest, now_ms)
        if fastest > track.fastest:
            track.fastest, track.moved_ms = fastest, now_ms
        if slowest != track.slowest:
            track.slowest, track.base, track.since_ms = slowest, fastest, None
        elif track.since_ms is None and fastest > track.base:
            track.since_ms = now_ms
        is_quiet = now_ms - track.moved_ms >= QUIET_MS
        return 0 if track.since_ms is None or is_quiet else now_ms - track.since_ms
