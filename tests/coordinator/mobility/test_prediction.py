"""Expected moves: what is prepared for them, what becomes of it, and that nothing else changes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyspark.sql import SparkSession

from meander.adapt.mobility.settings import PredictionSettings
from meander.coordinator.mobility.move_outcomes import PredictionOutcome
from meander.coordinator.mobility.prediction import prediction_of
from meander.model.events import CapacityChanged, ChangeEvent, LinkAdded, LinkRemoved
from meander.model.topology.elements import Link
from meander.reconfigure.state.precopy import AHEAD
from meander.run.execution.prepared import PreparedRunner
from tests.reconfigure.driver.driver_plane import SpreadPlane
from tests.reconfigure.moving import MovingPlane

QUERY = (
    "CREATE QUERY wet AS SELECT window_start, road, count(*) AS n FROM rain GROUP BY road "
    "WINDOW TUMBLING(ts, 20 s) INTO one"
)
SETTINGS = PredictionSettings("markov", lead_ms=10_000, keep_ms=5_000)


@pytest.fixture(scope="module")
def runner(spark: SparkSession) -> Iterator[PreparedRunner]:
    prepared = PreparedRunner(spark)
    yield prepared
    prepared.close()


class Round:
    """A sensor that goes round a ring of three edges, every four seconds, with the operator beside it."""

    def __init__(self, plane: MovingPlane, file: Path | None = None, settings: PredictionSettings = SETTINGS) -> None:
        self.plane, self.rng = plane, np.random.default_rng(3)
        plane.catalog.detour = 1.0
        pairs = [(f"e{i}", f"e{(i + 1) % 3}") for i in range(3)]
        plane.apply(*(LinkRemoved(0, *pair) for pair in pairs), *(LinkAdded(0, Link(*pair, 20)) for pair in pairs))
        plane.apply(CapacityChanged(0, "s2", slots=0))
        found = prediction_of(plane.loop, settings, file or plane.directory / "moves.json", self.now_ms)
        assert found is not None
        self.prediction, self.at = found, 2

    @property
    def now_ms(self) -> int:
        return int(self.plane.clock.now_ms)

    def stay(self, ms: int = 4_000) -> None:
        for _ in range(ms // 1_000):
            self.plane.feed(self.rng, self.now_ms)
            self.plane.step()
            for _ in range(4):
                self.plane.clock.now_ms += 250
                self.plane.poll()
                self.look()

    def look(self) -> None:
        # these go by the clock on the wall, and that of the plane is faster
        self.prediction._expected._told_at = self.prediction._free_at = 0.0
        self.prediction.tick(self.now_ms)

    def go(self, edge: int) -> None:
        events: list[ChangeEvent] = [LinkRemoved(0, "s2", f"e{self.at}"), LinkAdded(0, Link("s2", f"e{edge}", 1))]
        self.at = edge
        applied = self.plane.loop.decide(events)
        self.prediction.note(events, self.now_ms)
        self.plane.loop.begin(applied)
        self.settle()

    def settle(self) -> None:
        if isinstance(self.plane, SpreadPlane):
            self.plane.until(lambda: not self.plane.loop.deployer.has_open_changes)
        for _ in range(50):
            if not self.plane.loop.deployer.has_open_changes:
                return
            self.plane.step()
            self.plane.poll()
        raise AssertionError("the change did not end")

    def round(self, times: int = 1) -> None:
        for _ in range(3 * times):
            self.stay()
            self.go((self.at + 1) % 3)

    @property
    def entry(self) -> dict[str, Any]:
        return next(n for n in self.prediction.listing(self.now_ms) if n["node"] == "s2")

    @property
    def ahead(self) -> set[int]:
        return {f for f in self.plane.host.store.state.fragments() if f >= AHEAD}

    def check(self) -> None:
        self.plane.finish()
        assert {name: c for name, c in self.plane.compare().items() if not c.equal} == {}
        self.plane.check_deployment()


@pytest.fixture
def ring(spark: SparkSession, runner: PreparedRunner, tmp_path: Path) -> Round:
    found = Round(MovingPlane(tmp_path, spark, runner, QUERY, sends_ahead=True, disorder_ms=300))
    found.round()
    return found


def test_state_is_there_before_the_node_is_and_a_wrong_guess_costs_what_was_sent_and_nothing_else(ring: Round) -> None:
    prediction, precopies = ring.prediction, ring.plane.loop.driver.agent.mover.precopies
    ring.stay(1_000)
    entry, running = ring.entry, set(ring.plane.host.routing.fragments)
    assert (entry["at"], entry["next"], entry["prepared_for"], entry["ready"]) == ("e2", "e0", "e0", True)
    assert entry["bytes"] > 0
    assert len(entry["operators"]) == len(ring.ahead) == 1
    ring.stay(2_000)
    assert set(ring.plane.host.routing.fragments) == running  # nothing was decided
    used, hits = precopies.used_bytes, prediction.judged.outcomes[PredictionOutcome.HIT]
    ring.go(0)  # as expected
    assert prediction.judged.outcomes[PredictionOutcome.HIT] == hits + 1
    assert precopies.used_bytes > used
    assert prediction.judged.used_bytes > 0 == prediction.judged.wasted_bytes
    assert not ring.ahead
    ring.stay(2_000)
    assert ring.entry["prepared_for"] == "e1"
    ring.go(2)  # elsewhere
    assert prediction.judged.outcomes[PredictionOutcome.MISS] == 1
    assert prediction.judged.wasted_bytes > 0
    ring.stay(2_000)
    assert ring.entry["prepared_for"] == "e0"
    ring.stay(11_000)  # nowhere
    assert prediction.judged.outcomes[PredictionOutcome.EXPIRED] == 1
    came = [(m["from"], m["to"], m["expected"], m["outcome"], m["bytes"] > 0) for m in prediction.totals()["recent"]]
    assert came[:3] == [
        ("e2", None, "e0", "expired", True),
        ("e0", "e2", "e1", "miss", True),
        ("e2", "e0", "e0", "hit", True),
    ]
    assert ring.entry["prepared_for"] is None
    assert not ring.ahead
    ring.check()


def test_preparation_keeps_to_its_bounds(ring: Round) -> None:
    ring.prediction.settings = replace(SETTINGS, least_probability=0.99)
    ring.stay(1_000)
    assert (ring.entry["next"], ring.entry["prepared_for"]) == ("e0", None)
    ring.prediction.settings = replace(SETTINGS, lead_ms=100)
    ring.stay(1_000)
    assert ring.entry["prepared_for"] is None
    ring.prediction.settings = replace(SETTINGS, most_bytes=10)
    ring.stay(1_000)
    entry = ring.entry
    assert (entry["prepared_for"], entry["bytes"]) == ("e0", 0)
    assert not ring.ahead


def test_what_was_learned_survives_a_crash_and_what_was_sent_does_not(ring: Round, tmp_path: Path) -> None:
    ring.stay(1_000)
    ring.prediction.save()
    assert ring.ahead
    ring.plane.crash()
    assert not ring.ahead
    again = prediction_of(ring.plane.loop, SETTINGS, tmp_path / "moves.json", ring.now_ms)
    assert again is not None
    assert [n["next"] for n in again.listing(ring.now_ms) if n["node"] == "s2"] == ["e0"]
    (tmp_path / "moves.json").write_text('{"markov": {"version": 9}}')
    anew = prediction_of(ring.plane.loop, SETTINGS, tmp_path / "moves.json", ring.now_ms)
    assert anew is not None
    assert [n["next"] for n in anew.listing(ring.now_ms)] == [None] * 3
    assert prediction_of(ring.plane.loop, PredictionSettings(), tmp_path / "moves.json", 0) is None
    ring.check()


def test_state_is_at_the_next_site_before_the_node_is(
    spark: SparkSession, runner: PreparedRunner, tmp_path: Path
) -> None:
    sites = {"west": ("s0", "e0"), "east": ("s1", "e1"), "south": ("s2", "e2")}
    plane = SpreadPlane(tmp_path, spark, runner, QUERY, sites, sends_ahead=True, disorder_ms=300)
    try:
        ring = Round(plane)
        plane.until(lambda: not plane.loop.deployer.has_open_changes)
        ring.round()

        def is_ready() -> bool:
            ring.look()
            return bool(ring.entry["ready"] and ring.entry["bytes"])

        ring.stay(1_000)
        plane.until(is_ready)
        assert ring.entry["prepared_for"] == "e0"
        numbers = ring.prediction._prepared["s2"].numbers
        plane.kill("south")  # it had to send what changes
        plane.restart("south")

        def is_ready_again() -> bool:
            plane.clock.now_ms += 50
            return is_ready() and ring.prediction._prepared["s2"].numbers != numbers

        plane.until(is_ready_again)
        assert ring.entry["prepared_for"] == "e0"
        precopies = plane.machines["west"].agent.mover.precopies
        used = precopies.used_bytes
        ring.go(0)
        assert precopies.used_bytes > used
        plane.finish()
        assert {name: c for name, c in plane.compare().items() if not c.equal} == {}
        plane.check_deployment()
    finally:
        plane.close()
