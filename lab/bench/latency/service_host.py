"""The side of the product: one host as the service runs it, from sources over steps and commits to sinks."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql import SparkSession

from lab.bench.latency.cases import AGGREGATE, WINDOW_MS, Case, LatencyWorld, world
from lab.bench.latency.cpu import cpu_s
from lab.bench.latency.tap import Tap
from meander.run.connectors.base import SinkBinding, SourcePosition, Surroundings
from meander.run.frames import NEWEST
from meander.run.host import Host, HostOptions

CAUGHT_UP_MS = 500.0
"""Latency below which what was given at first has been worked through."""
LONGEST_FILL_S = 600.0
MICROS = pa.timestamp("us", "UTC")


@dataclass
class Stopwatch:
    """A sink that notes how old the newest tuple of each result is, or the end of its window."""

    windows: bool
    fixed_ranges: bool = False
    tables_ms: list[npt.NDArray[np.float64]] = field(default_factory=list)

    def open(self, binding: SinkBinding, schema: pa.Schema, position: SourcePosition) -> None:
        """Nothing is kept."""

    def write(self, table: pa.Table, first: int) -> Any:
        now = time.time() * 1000
        if self.windows:
            begun = table.column("window_start").cast(MICROS).cast(pa.int64()).to_numpy() / 1000
            self.tables_ms.append(now - (begun + WINDOW_MS))
        else:
            self.tables_ms.append(now - table.column(NEWEST).to_numpy())

    def close(self) -> None:
        """Nothing is open."""

    def take(self) -> npt.NDArray[np.float64]:
        """The latencies noted since they were taken last."""
        taken, self.tables_ms = self.tables_ms, []
        return np.concatenate(taken) if taken else np.zeros(0)


@dataclass(frozen=True, slots=True)
class Measured:
    """Latencies of results, processors in use, and rows of state."""

    latencies_ms: npt.NDArray[np.float64]
    cores: float
    state_rows: int = 0

    def quantile_ms(self, share: float) -> float:
        return float(np.quantile(self.latencies_ms, share)) if self.latencies_ms.size else float("inf")


class ServiceHost:
    """One host with the queries of all cases; only taps that are on give it work."""

    def __init__(self, spark: SparkSession, directory: Path, cases: list[Case]) -> None:
        self.world: LatencyWorld = world(cases)
        keys = {name: case.keys for case in cases for name in case.streams}
        self.taps = {name: Tap(stream, keys[name]) for name, stream in self.world.file.streams.items()}
        kinds = {case.slug: case.kind for case in cases}
        plan, around = self.world.plan, Surroundings(directory, directory)
        self.sinks = {b.query: Stopwatch(kinds[b.query] == AGGREGATE) for b in plan.sink_bindings}
        self.host = Host(HostOptions(directory / "host"), spark)
        self.host.install(plan.installation)
        self.host.warm_up()
        self.host.start()
        self.host.deliver(plan.sink_bindings, around, {b.name: self.sinks[b.query] for b in plan.sink_bindings})
        self.host.feeding.begin(self.world.file.streams.values(), around, self.taps)

    def warm(self, cases: list[Case], seconds: float) -> None:
        """Lets cases run together, so that Java has compiled what the first one to be measured needs."""
        names, now_s = [name for case in cases for name in case.streams], time.time()
        rates = {name: case.stream_tps for case in cases for name in case.streams}
        for name in names:
            self.taps[name].turn_on(rates[name], 0.0, now_s)
        time.sleep(seconds)
        for name in names:
            self.taps[name].turn_off()
        self._settle()

    def measure(self, case: Case, warm_s: float, seconds: float, progress: Callable[[str], None]) -> Measured:
        """Latencies of one case, once the past has been worked through."""
        sink, now_s, rows = self.sinks[case.slug], time.time(), self._state_rows()
        for name in case.streams:
            self.taps[name].turn_on(case.stream_tps, case.past_s, now_s)
        try:
            progress(f"{case.title}: filling")
            self._catch_up(sink)
            progress(f"{case.title}: measuring")
            time.sleep(warm_s)
            sink.take()
            began, before = time.monotonic(), cpu_s()
            time.sleep(seconds)
            cores = (cpu_s() - before) / (time.monotonic() - began)
            return Measured(sink.take(), cores, self._state_rows() - rows)
        finally:
            for name in case.streams:
                self.taps[name].turn_off()
            self._settle()

    def _catch_up(self, sink: Stopwatch) -> None:
        deadline = time.monotonic() + LONGEST_FILL_S
        while time.monotonic() < deadline:
            time.sleep(0.1)
            latest = sink.take()
            if latest.size and float(latest[-1]) < CAUGHT_UP_MS:
                return
        raise TimeoutError(f"tuples still wait: {self.host.status().problems}")

    def _state_rows(self) -> int:
        state = self.host.store.state
        return sum(state.size(fragment).rows for fragment in state.fragments())

    def _settle(self) -> None:
        """Waits until nothing of the case is under way, so that the next one is alone."""
        deadline = time.monotonic() + 10
        while self.host.busy() and time.monotonic() < deadline:
            time.sleep(0.05)

    def stop(self) -> None:
        self.host.stop()
