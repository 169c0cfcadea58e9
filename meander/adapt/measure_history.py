"""Recent measures, kept as long as the longest window needs them."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

from meander.adapt.measures import EnvironmentMeasures, Measures, QueryMeasures
from meander.model.errors import InputError
from meander.model.ids import NodeId, QueryId


@dataclass(frozen=True, slots=True)
class Span:
    """One query's part of one round of measures."""

    at_ms: int
    span_ms: int
    query: QueryMeasures
    loads: Mapping[NodeId, float]


@dataclass(frozen=True, slots=True)
class WorldSpan:
    """The environment's part of one round of measures."""

    at_ms: int
    span_ms: int
    world: EnvironmentMeasures


class MeasureHistory:
    """Measures in order of time."""

    def __init__(self, keep_ms: int) -> None:
        self.keep_ms = keep_ms
        self._kept: deque[Measures] = deque()

    def add(self, measures: Measures) -> None:
        if self._kept and measures.at_ms <= self._kept[-1].at_ms:
            raise InputError(f"measures of {measures.at_ms} ms came after those of {self._kept[-1].at_ms} ms")
        self._kept.append(measures)
        while self._kept[0].at_ms <= measures.at_ms - self.keep_ms:
            self._kept.popleft()

    def spans(self, query: QueryId, window_ms: int, since_ms: int) -> list[Span]:
        """The measures of a query within the window, in spans that began at `since_ms` or later."""
        found: list[Span] = []
        for m in reversed(self._kept):
            if m.at_ms <= self._kept[-1].at_ms - window_ms or m.at_ms - m.span_ms < since_ms:
                break
            seen = m.queries.get(query)
            if seen is not None:
                found.append(Span(m.at_ms, m.span_ms, seen, m.loads))
        return found[::-1]

    def world(self, window_ms: int) -> list[WorldSpan]:
        """The measures of the environment within the window."""
        latest = self._kept[-1].at_ms if self._kept else 0
        return [WorldSpan(m.at_ms, m.span_ms, m.world) for m in self._kept if m.at_ms > latest - window_ms]
