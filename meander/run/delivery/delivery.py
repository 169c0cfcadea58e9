"""Delivery: committed results out of their channels, into sinks, then acknowledged.

Results stay in their channel until the sink has taken them and the acknowledgement is committed. A sink that fails is
opened again at the acknowledged position and tried again with growing pauses; then its outlet is paused with the
reason, while the others go on. A sink that does not come back keeps the thread that called it; after a moment another
thread goes on with all other outlets.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType

from meander.model.clock import wall_clock_ms
from meander.model.errors import InputError, unknown
from meander.model.ids import ChannelId
from meander.run.connectors import sink_for
from meander.run.connectors.base import SinkBinding, SinkConnector, Surroundings
from meander.run.delivery.latency import LatencyHistogram, Percentiles
from meander.run.delivery.sink_task import SinkTask, SinkTaskMetrics
from meander.run.store.store import Store

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class DeliveryOptions:
    """How much at a time, and how long to sleep when there is nothing."""

    most_rows: int = 250_000
    interval_ms: int = 100
    patience_ms: int = 2_000
    """How long the others wait for a sink that does not come back."""
    given_up_ms: int = 20_000
    """After how long nobody who stops or drains waits for such a sink any more."""


@dataclass(frozen=True, slots=True)
class DeliveryMetrics:
    """What went out, by outlet; and event-time latency, by query, since the process began."""

    rows: int
    outlets: Mapping[str, SinkTaskMetrics]
    latency: Mapping[str, Percentiles]


class Delivery:
    """The outlets of one site host. `tick` may be called by hand, or by the thread that `start` begins."""

    def __init__(
        self,
        store: Store,
        outlets: Iterable[SinkBinding] = (),
        *,
        clock: Callable[[], int] = wall_clock_ms,
        options: DeliveryOptions | None = None,
        surroundings: Surroundings | None = None,
    ) -> None:
        self._store, self._clock = store, clock
        self.options = options or DeliveryOptions()
        self._around = surroundings or Surroundings(Path.cwd(), Path.cwd() / "work")
        self._drains: dict[str, SinkTask] = {}
        self._latency: dict[str, LatencyHistogram] = {}
        self._lock = threading.RLock()
        """Of the table of outlets; never held while a sink is at work."""
        self._stopping = threading.Event()
        self._carrier: threading.Thread | None = None
        """The thread that delivers. Another one that is still in a sink ends when that comes back."""
        self._watcher: threading.Thread | None = None
        self._looked = time.monotonic()
        """When the carrier last began with an outlet, or had nothing to do."""
        for outlet in outlets:
            self.add(outlet)

    # Outlets

    def add(self, outlet: SinkBinding, sink: SinkConnector | None = None) -> SinkConnector:
        """Begins to deliver an outlet, behind what was acknowledged under its name. Gives its sink."""
        with self._lock:
            if outlet.name in self._drains:
                raise InputError(f"outlet {outlet.name!r} exists already; remove it first")
            sink = sink or sink_for(outlet, self._around)
            self._check_path(outlet, sink)
            latency = self._latency.setdefault(outlet.query, LatencyHistogram())
            self._drains[outlet.name] = SinkTask(self._store, outlet, sink, self._clock, latency)
            return sink

    def _check_path(self, outlet: SinkBinding, sink: SinkConnector) -> None:
        path = getattr(sink, "path", None)
        for other in self._drains.values():
            if path is not None and getattr(other.sink, "path", None) == path:
                raise InputError(
                    f"sink {outlet.target.name!r}: {outlet.name!r} and {other.outlet.name!r} both write to {path}; "
                    "put {query} into option 'path'"
                )

    def remove(self, name: str) -> None:
        """Stops delivering an outlet; what waits in its channel stays there."""
        with self._lock:
            self._drain(name).close()
            del self._drains[name]

    def rewire(self, outlet: SinkBinding) -> None:
        """Lets an outlet read from another channel; numbers and files go on."""
        self._drain(outlet.name).rewire(outlet)

    def sink(self, name: str) -> SinkConnector:
        return self._drain(name).sink

    def paused(self) -> list[str]:
        """Outlets that wait for `resume`."""
        return [drain.outlet.name for drain in self._all() if drain.paused]

    def resume(self, name: str) -> None:
        """Tries a paused outlet again, at once."""
        self._drain(name).resume()

    def _drain(self, name: str) -> SinkTask:
        with self._lock:
            if name not in self._drains:
                raise unknown("outlet", name, self._drains)
            return self._drains[name]

    def _all(self) -> list[SinkTask]:
        with self._lock:
            return list(self._drains.values())

    # Ticks

    def tick(self) -> int:
        """Delivers what has been committed; says how many rows were acknowledged."""
        rows = 0
        for drain in self._all():
            self._looked = time.monotonic()
            rows += drain.deliver(self.options.most_rows)
            if self._is_relieved():
                break
        return rows

    def start(self) -> None:
        """Delivers in a thread of its own until `stop`, woken by commits."""
        if self._carrier is None:
            self._stopping.clear()
            self._begin()
            self._watcher = threading.Thread(target=self._watch, name="delivery watch", daemon=True)
            self._watcher.start()

    def _begin(self) -> None:
        self._looked = time.monotonic()
        self._carrier = threading.Thread(target=self._run, name="delivery", daemon=True)
        self._carrier.start()

    def _is_relieved(self) -> bool:
        """Whether another thread has taken over from this one."""
        here = threading.current_thread()
        return here.name == "delivery" and here is not self._carrier

    def _run(self) -> None:
        while not self._stopping.is_set() and not self._is_relieved():
            seen = self._store.commits
            try:
                self.tick()
            except Exception:
                _log.exception("a tick of delivery failed; the next one tries again")
                self._stopping.wait(self.options.interval_ms / 1000)
            if not self._is_relieved():
                self._looked = time.monotonic()
                self._store.wait(seen, self.options.interval_ms / 1000)

    def _watch(self) -> None:
        """Lets another thread go on when a sink does not come back."""
        patience_s = self.options.patience_ms / 1000
        while not self._stopping.wait(patience_s / 4):
            if time.monotonic() - self._looked > patience_s + self.options.interval_ms / 1000:
                names = [d.outlet.name for d in self._all() if d.overdue_s > patience_s]
                if names:
                    _log.warning("the sink of %s does not come back; the others go on", ", ".join(names))
                    self._begin()

    def stop(self) -> None:
        """Ends the thread after its tick and closes all sinks but those that do not come back."""
        self._stopping.set()
        patience_s = self.options.patience_ms / 1000
        for thread in (self._watcher, self._carrier):
            while thread is not None and thread.is_alive() and time.monotonic() - self._looked < 5 * patience_s:
                thread.join(patience_s / 4)
        self._carrier = self._watcher = None
        with self._lock:
            for drain in self._drains.values():
                drain.close()

    def __enter__(self) -> Delivery:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    # Asking

    def paused_channels(self) -> set[ChannelId]:
        """Channels whose outlets are paused, or whose sinks are given up: what is in them will not leave for now."""
        return {drain.outlet.channel for drain in self._all() if self._trouble(drain, self.options.given_up_ms)}

    @staticmethod
    def _trouble(drain: SinkTask, patience_ms: int) -> str | None:
        overdue_s = drain.overdue_s
        if overdue_s * 1000 > patience_ms:
            return f"its sink has not come back for {overdue_s:.0f} s"
        return drain.paused

    def latencies(self) -> dict[str, LatencyHistogram]:
        """Event-time latency by query, as of now."""
        with self._lock:
            return {query: latency.copy() for query, latency in self._latency.items()}

    def latency(self, query: str) -> Percentiles:
        """Time from the newest input's event time to the acknowledgement of the result."""
        if query not in self._latency:
            raise unknown("query", query, self._latency, "queries")
        return self._latency[query].percentiles()

    def metrics(self) -> DeliveryMetrics:
        outlets = {
            d.outlet.name: replace(d.metrics(), paused=self._trouble(d, self.options.patience_ms)) for d in self._all()
        }
        return DeliveryMetrics(
            sum(o.rows for o in outlets.values()),
            outlets,
            {query: latency.percentiles() for query, latency in self.latencies().items()},
        )
