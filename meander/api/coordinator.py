"""The coordinator: everything put together on one directory. Start it, talk to it over HTTP or in Python, stop it.

    with running(Path("here"), Path("ring.yaml")) as coordinator:
        coordinator.submit("SELECT id FROM train WHERE speed < 5 INTO alerts", "slow")
        coordinator.events([{"event": "link_removed", "source": "train-1", "target": "station-1"}])

A directory that was used before goes on where it was, however the process before ended.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from meander.api.process import CoordinatorProcess
from meander.coordinator.assembly import Assembly
from meander.coordinator.directory.creation import create
from meander.coordinator.directory.directory import CoordinatorDirectory, held
from meander.coordinator.options import CoordinatorOptions
from meander.coordinator.security.authenticator import OWNER
from meander.coordinator.security.private import private_directory
from meander.coordinator.service.changes import body_of
from meander.lang.topology.reader import load
from meander.model.events import ChangeEvent
from meander.place.catalog import Catalog
from meander.run.connectors import check_connectors
from meander.run.connectors.base import SinkBinding, Surroundings
from meander.run.delivery.latency import LatencyHistogram
from meander.run.operators.user_function import only


class Coordinator(CoordinatorProcess):
    """The process and its face in Python. Use `running`."""

    @property
    def address(self) -> str:
        return self.server.address

    @property
    def page(self) -> str:
        """An address that opens the page once, within an hour."""
        return f"{self.address}/{self.service.authenticator.link(OWNER)}"

    @property
    def parts(self) -> Assembly:
        assert self._parts is not None, "the coordinator was not started"
        return self._parts

    @property
    def spark(self) -> SparkSession:
        assert self._spark is not None, "the coordinator was not started"
        return self._spark

    @property
    def catalog(self) -> Catalog:
        """Not to be touched while the coordinator runs, but for looking at streams and sinks."""
        return self.parts.loop.catalog

    @property
    def first_sink_bindings(self) -> list[SinkBinding]:
        """The sink bindings of the first queries that were never stopped."""
        first = set(self.options.first)
        return [
            o for o in self.parts.core.sink_bindings.known.values() if o.query in first and o.query not in self.stopped
        ]

    @property
    def stopped(self) -> set[str]:
        return self.parts.core.sink_bindings.stopping

    def submit(self, text: str, name: str | None = None) -> dict[str, Any]:
        """Adds a query; gives it as `GET /queries/{id}` does."""
        return body_of(self.service.changes.submit(text, name))

    def events(self, events: Sequence[Mapping[str, Any] | ChangeEvent]) -> dict[str, Any]:
        """Applies change events as one batch; returns the result."""
        return body_of(self.service.changes.apply(events))

    def restore(self, nodes: Sequence[str]) -> dict[str, Any]:
        """Brings removed nodes back as they were; returns the result."""
        return body_of(self.service.changes.restore(nodes))

    def forget(self, nodes: Sequence[str]) -> dict[str, Any]:
        """Removed nodes are not wanted back."""
        return body_of(self.service.changes.forget(nodes))

    def demands(self, query: str, demands: Sequence[str]) -> dict[str, Any]:
        return body_of(self.service.changes.demand(query, demands))

    def switch(self, query: str, mechanism: str, protocol: str | None = None) -> dict[str, Any]:
        return body_of(self.service.changes.switch(query, mechanism, protocol))

    def positions(self, positions: Mapping[str, tuple[float, float]]) -> None:
        """The positions of moving things now."""
        self.service.positions.move({name: {"x": x, "y": y} for name, (x, y) in positions.items()})

    def latencies(self) -> dict[str, LatencyHistogram]:
        """Event-time latency by query since the process began."""
        return self.parts.host.latencies()

    def summary(self) -> dict[str, Any]:
        """The totals since the process began."""
        return self.parts.summary()

    def drain(self, timeout_s: float = 60.0) -> bool:
        """Stops the sources, ends the streams and waits until everything is delivered; no more changes afterwards."""
        parts = self.parts
        parts.core.stop()
        deadline = time.monotonic() + timeout_s
        transitions = parts.core.adaptation.transitions
        while transitions.under_way and time.monotonic() < deadline:
            parts.loop.settle(1.0)
            transitions.poll()
        parts.loop.settle(max(1.0, deadline - time.monotonic()))
        drained = parts.host.drain(end_streams=True, timeout_s=max(1.0, deadline - time.monotonic()))
        parts.core.measured(parts.measuring.measure())
        parts.core.carry_on()
        return drained


@contextmanager
def running(
    directory: Path,
    topology: Path | None = None,
    options: CoordinatorOptions | None = None,
    spark: SparkSession | None = None,
) -> Iterator[Coordinator]:
    """A coordinator on a directory, which is made when it is new; it needs a topology then."""
    chosen = options or CoordinatorOptions()
    chosen.check()
    home = CoordinatorDirectory(directory)
    if not home.exists:
        if topology is None:
            home.check()
        else:
            create(directory, topology)
    private_directory(directory)
    with held(home), only(chosen.functions):
        world = load(home.topology)
        check_connectors(world.streams.values(), (), Surroundings(home.results, home.host))
        coordinator = Coordinator(home, world, chosen, spark)
        try:
            coordinator.start()
            yield coordinator
        finally:
            coordinator.stop()
