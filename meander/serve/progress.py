"""How long the event time of queries has stood still although their sources went on.

Windows wait for the slowest of their inputs. When one of them gives nothing, what the others gave is read, so no tuple
waits in a channel, and yet nothing comes out. It shows in watermarks: a source's moves, the sink's does not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from meander.model.global_plan import GlobalPlan
from meander.model.ids import ChannelId, OperatorId, QueryId
from meander.model.operators import STATEFUL, Sink, Source
from meander.run.exchange.base import ChannelCounters
from meander.run.frames import END
from meander.run.installation import OUTSIDE

QUIET_MS = 10_000
"""When no source has moved for so long, all of them are quiet, and nobody waits for anything."""


@dataclass(frozen=True, slots=True)
class Marks:
    """Watermarks of a query with windows, by operator, as far as its sources and sinks are on one host."""

    sources: Mapping[OperatorId, int]
    sinks: Mapping[OperatorId, int]

    @staticmethod
    def of(
        plan: GlobalPlan, operators: Sequence[OperatorId], counters: Mapping[ChannelId, ChannelCounters]
    ) -> Marks | None:
        """None for a query that waits for no time, and for one of which not everything is known here."""
        found = [o for o in operators if o in plan.operators]
        ends = [o for o in found if isinstance(plan[o].spec, Source | Sink)]
        if not any(isinstance(plan[o].spec, STATEFUL) for o in found):
            return None
        if any(ChannelId(OUTSIDE + o) not in counters for o in ends):
            return None
        marks = {o: counters[ChannelId(OUTSIDE + o)].watermark for o in ends}
        sources = {o: mark for o, mark in marks.items() if isinstance(plan[o].spec, Source) and mark < END}
        sinks = {o: mark for o, mark in marks.items() if isinstance(plan[o].spec, Sink)}
        return Marks(sources, sinks) if sources and sinks else None


@dataclass(slots=True)
class _Track:
    sink: int
    source: int
    """The furthest that a source was seen."""
    base: int
    """Where that was when the sink moved last."""
    moved_ms: int
    """When a source moved last."""
    since_ms: int | None = None
    """When a source first moved after the sink had."""


class Progress:
    """Compares watermarks with those of earlier readings. Times are any clock's, as long as it is the same one."""

    def __init__(self) -> None:
        self._tracks: dict[QueryId, _Track] = {}

    def read(self, now_ms: int, marks: Mapping[QueryId, Marks]) -> dict[QueryId, tuple[int, OperatorId]]:
        """Queries whose time stands still: for how long at least, and the source that is the furthest behind."""
        self._tracks = {query: track for query, track in self._tracks.items() if query in marks}
        found: dict[QueryId, tuple[int, OperatorId]] = {}
        for query, seen in marks.items():
            held_ms = self._held_ms(query, now_ms, max(seen.sources.values()), min(seen.sinks.values()))
            if held_ms:
                found[query] = held_ms, min(seen.sources, key=lambda o: seen.sources[o])
        return found

    def _held_ms(self, query: QueryId, now_ms: int, source: int, sink: int) -> int:
        track = self._tracks.get(query)
        if track is None or source < track.source:
            track = self._tracks[query] = _Track(sink, source, source, now_ms)
        if source > track.source:
            track.source, track.moved_ms = source, now_ms
        if sink != track.sink:
            track.sink, track.base, track.since_ms = sink, source, None
        elif track.since_ms is None and source > track.base:
            track.since_ms = now_ms
        is_quiet = now_ms - track.moved_ms >= QUIET_MS
        return 0 if track.since_ms is None or is_quiet else now_ms - track.since_ms
