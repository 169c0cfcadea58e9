"""Delivery: committed results out of their channels, into sinks, then acknowledged.

Results stay in their channel until the sink has taken them and the acknowledgement is committed. A sink that fails is
opened again at the acknowledged position and tried again with growing pauses; then its sink binding is paused with the
reason, while the others go on. A sink that does not come back keeps the thread that called it; after a moment another
thread goes on with all other sink bindings.
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
from meander.model.locks import reentrant_lock
from meander.run.connectors import sink_for
from meander.run.connectors.base import SinkBinding, SinkConnector, Surroundings
from meander.run.delivery.latency import LatencyHistogram, Percentiles
from meander.run.delivery.sink_task import SinkTask, SinkTaskMetrics
from meander.run.store.store import Store

_log = logging.getLogger(__name__)
LOOK_S = 0.5
"""The interval at which a thread without work says that it is there."""


@dataclass(frozen=True, slots=True)
class DeliveryOptions:
    """The size of a delivery, and the pauses when there is nothing to deliver."""

    most_rows: int = 250_000
    interval_ms: int = 100
    sink_timeout_ms: int = 2_000
    """The time for which other sinks wait for one that does not return."""
    given_up_ms: int = 20_000
    """The time after which stopping and draining do not wait for such a sink any more."""


@dataclass(frozen=True, slots=True)
class DeliveryMetrics:
    """The rows delivered, by sink binding; and event-time latency, by query, since the process began."""

    rows: int
    sink_bindings: Mapping[str, SinkTaskMetrics]
    latency: Mapping[str, Percentiles]


class Delivery:
    """The sink bindings of one site host. `tick` may be called by hand, or by the thread that `start` begins."""

    def __init__(
        self,
        store: Store,
        sink_bindings: Iterable[SinkBinding] = (),
        *,
        clock: Callable[[], int] = wall_clock_ms,
        options: DeliveryOptions | None = None,
        surroundings: Surroundings | None = None,
    ) -> None:
        self._store, self._clock = store, clock
        self.options = options or DeliveryOptions()
        self._around = surroundings or Surroundings(Path.cwd(), Path.cwd() / "work")
        self._tasks: dict[str, SinkTask] = {}
        self._latency: dict[str, LatencyHistogram] = {}
        self._lock = reentrant_lock("delivery")
        """Of the table of sink bindings; never held while a sink is at work."""
        self._stopping = threading.Event()
        self._carrier: threading.Thread | None = None
        """The thread that delivers. Another one that is still in a sink ends when that comes back."""
        self._watcher: threading.Thread | None = None
        self._looked = time.monotonic()
        """The time at which the delivery thread last began with a sink binding, or had nothing to do."""
        self._watch = store.wakeups.watch()
        for binding in sink_bindings:
            self.add(binding)

    # Sink bindings

    def add(self, binding: SinkBinding, sink: SinkConnector | None = None) -> SinkConnector:
        """Begins to deliver a sink binding, behind the rows acknowledged under its name. Gives its sink."""
        with self._lock:
            if binding.name in self._tasks:
                raise InputError(f"sink binding {binding.name!r} exists already; remove it first")
            sink = sink or sink_for(binding, self._around)
            self._check_path(binding, sink)
            latency = self._latency.setdefault(binding.query, LatencyHistogram())
            self._tasks[binding.name] = SinkTask(self._store, binding, sink, self._clock, latency)
            self._watch_channels()
            return sink

    def _watch_channels(self) -> None:
        self._watch.only(task.binding.channel for task in self._tasks.values())

    def _check_path(self, binding: SinkBinding, sink: SinkConnector) -> None:
        path = getattr(sink, "path", None)
        for other in self._tasks.values():
            if path is not None and getattr(other.sink, "path", None) == path:
                raise InputError(
                    f"sink {binding.target.name!r}: {binding.name!r} and {other.binding.name!r} both write to {path}; "
                    "put {query} into option 'path'"
                )

    def remove(self, name: str) -> None:
        """Stops delivering a sink binding; tuples in its channel stay there."""
        with self._lock:
            self._task(name).close()
            del self._tasks[name]
            self._watch_channels()

    def rewire(self, binding: SinkBinding) -> None:
        """Lets a sink binding read from another channel; numbers and files go on."""
        self._task(binding.name).rewire(binding)
        with self._lock:
            self._watch_channels()

    def sink(self, name: str) -> SinkConnector:
        return self._task(name).sink

    def paused(self) -> list[str]:
        """Sink bindings that wait for `resume`."""
        return [task.binding.name for task in self._all() if task.paused]

    def resume(self, name: str) -> None:
        """Tries a paused sink binding again, at once."""
        self._task(name).resume()
        self._watch.touch_all()

    def _task(self, name: str) -> SinkTask:
        with self._lock:
            if name not in self._tasks:
                raise unknown("sink binding", name, self._tasks)
            return self._tasks[name]

    def _all(self) -> list[SinkTask]:
        with self._lock:
            return list(self._tasks.values())

    # Ticks

    def tick(self) -> int:
        """Delivers committed results; returns the number of acknowledged rows."""
        return self._deliver(self._all())

    def _deliver(self, tasks: Iterable[SinkTask]) -> int:
        rows = 0
        for task in tasks:
            self._looked = time.monotonic()
            rows += task.deliver(self.options.most_rows)
            if self._is_relieved():
                break
        return rows

    def start(self) -> None:
        """Delivers in a thread of its own until `stop`, woken by commits."""
        if self._carrier is None:
            self._stopping.clear()
            self._begin()
            self._watcher = threading.Thread(target=self._guard, name="delivery watch", daemon=True)
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
        """First all sink bindings, then those whose channels got something, and those that could not go on before."""
        self._watch.touch_all()  # another thread may have taken what was touched with it into a sink
        waiting: list[SinkTask] = []
        while not self._stopping.is_set() and not self._is_relieved():
            touched, tasks = self._watch.take(), self._all()
            if touched is not None:
                tasks = [task for task in tasks if task.binding.channel in touched or task in waiting]
            rows = 0
            try:
                rows = self._deliver(tasks)
                waiting = [task for task in tasks if task.has_more]
            except Exception:
                _log.exception("a tick of delivery failed; the next one tries again")
                waiting = self._all()
                self._stopping.wait(self.options.interval_ms / 1000)
            if not self._is_relieved():
                self._looked = time.monotonic()
                if not (rows and waiting):  # else there may be more at once
                    self._watch.wait(self._pause_s() if waiting else LOOK_S)

    def _pause_s(self) -> float:
        """The pause while results wait: until the emulated latency releases one, or a sink is tried again."""
        ready, interval_ms = self._store.exchange.next_ready_ms(), self.options.interval_ms
        return (interval_ms if ready is None else min(interval_ms, max(1, ready - self._store.now_ms()))) / 1000

    def _guard(self) -> None:
        """Lets another thread go on when a sink does not come back."""
        timeout_s = self.options.sink_timeout_ms / 1000
        while not self._stopping.wait(timeout_s / 4):
            if time.monotonic() - self._looked > timeout_s + self.options.interval_ms / 1000:
                names = [d.binding.name for d in self._all() if d.overdue_s > timeout_s]
                if names:
                    _log.warning("the sink of %s does not come back; the others go on", ", ".join(names))
                    self._begin()

    def stop(self) -> None:
        """Ends the thread after its tick and closes all sinks but those that do not come back."""
        self._stopping.set()
        self._watch.touch_all()
        timeout_s = self.options.sink_timeout_ms / 1000
        for thread in (self._watcher, self._carrier):
            while thread is not None and thread.is_alive() and time.monotonic() - self._looked < 5 * timeout_s:
                thread.join(timeout_s / 4)
        self._carrier = self._watcher = None
        with self._lock:
            for task in self._tasks.values():
                task.close()

    def __enter__(self) -> Delivery:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    # Asking

    def paused_channels(self) -> set[ChannelId]:
        """Channels whose sink bindings are paused, or whose sinks are given up: their tuples will not leave for now."""
        return {task.binding.channel for task in self._all() if self._trouble(task, self.options.given_up_ms)}

    @staticmethod
    def _trouble(task: SinkTask, sink_timeout_ms: int) -> str | None:
        overdue_s = task.overdue_s
        if overdue_s * 1000 > sink_timeout_ms:
            return f"its sink has not come back for {overdue_s:.0f} s"
        return task.paused

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
        sink_bindings = {
            d.binding.name: replace(d.metrics(), paused=self._trouble(d, self.options.sink_timeout_ms))
            for d in self._all()
        }
        return DeliveryMetrics(
            sum(o.rows for o in sink_bindings.values()),
            sink_bindings,
            {query: latency.percentiles() for query, latency in self.latencies().items()},
        )
