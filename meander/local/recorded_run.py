"""A run whose tuples are recorded on their way in and out, so that its results can be compared with the oracle's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import SparkSession

from meander.model.streams import Stream
from meander.place.catalog import Catalog
from meander.run.connectors import sink_for, source_for
from meander.run.connectors.base import SinkBinding, Surroundings
from meander.run.connectors.options import ConnectorOptions
from meander.run.oracle.batch import oracle
from meander.run.oracle.comparison import Comparison, compare
from meander.run.oracle.recording import RecordedSink, Recording

MOST_CHECKED_ROWS = 2_000_000


class RecordedRun:
    """The recordings of a run's streams and sinks."""

    def __init__(self, streams: Mapping[str, Stream], around: Surroundings) -> None:
        self._around = around
        self.sources = {n: Recording(source_for(s, around), s, MOST_CHECKED_ROWS) for n, s in streams.items()}
        self.sinks: dict[str, RecordedSink] = {}
        self.sink_bindings: dict[str, SinkBinding] = {}

    def add(self, binding: SinkBinding) -> RecordedSink:
        """Records what goes to a sink, too."""
        self.sink_bindings[binding.name] = binding
        sink = self.sinks[binding.name] = RecordedSink(sink_for(binding, self._around))
        return sink

    def check(
        self, spark: SparkSession, catalog: Catalog, sink_bindings: Sequence[SinkBinding]
    ) -> tuple[dict[str, Comparison], str | None]:
        return check_results(spark, catalog, sink_bindings, self.sources, self.sinks)


def check_results(
    spark: SparkSession,
    catalog: Catalog,
    sink_bindings: Sequence[SinkBinding],
    recordings: Mapping[str, Recording],
    sinks: Mapping[str, RecordedSink],
) -> tuple[dict[str, Comparison], str | None]:
    """Compares the sinks' results with the oracle's, from the sources' tuples; or gives the reason why that is not
    possible."""
    if not all(r.complete for r in recordings.values()):
        return {}, f"more than {MOST_CHECKED_ROWS:,} tuples of a stream: too many to check"
    inputs = {name: r.table() for name, r in recordings.items()}
    disorder = {
        name: ConnectorOptions(s.options, f"stream {name!r}").duration("disorder", 0) or 0
        for name, s in catalog.streams.items()
    }
    found: dict[str, Comparison] = {}
    for name, running in catalog.plan.queries.items():
        mine = [o for o in sink_bindings if o.query == name]
        expected = oracle(spark, running.query.plan, inputs, disorder) if mine else {}
        for binding in mine:
            found[binding.name] = compare(expected[binding.target.name], sinks[binding.name].table())
    return found, None
