"""The same loop as a state machine: hypothesis looks for the smallest schedule in which something is wrong."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.coordinator.loop.catalog_checks import catalog_faults
from tests.coordinator.loop.ground import Ground
from tests.coordinator.loop.schedules import Schedule, none_of
from tests.coordinator.loop.world import LONG_MS, LoopWorld, ServiceWorld, Setting


class Chosen:
    """Draws like numpy's generator, but by hypothesis, which makes what it drew simpler when a check fails."""

    def __init__(self, data: st.DataObject) -> None:
        self.data = data

    def random(self) -> float:
        return float(self.data.draw(st.sampled_from([0.9, 0.7, 0.5, 0.2, 0.0])))

    def integers(self, low: int, high: int | None = None, size: int | None = None) -> Any:
        first, last = (0, low - 1) if high is None else (low, high - 1)
        if size is not None:
            return np.array(self.data.draw(st.lists(st.integers(first, last), min_size=size, max_size=size)))
        return self.data.draw(st.integers(first, last))

    def choice(self, values: Any, p: Any = None) -> Any:
        found = range(values) if isinstance(values, int) else values
        return self.data.draw(st.sampled_from(list(found)))

    def shuffle(self, values: list[Any]) -> None:
        values[:] = self.data.draw(st.permutations(values))


class LoopMachine(RuleBasedStateMachine):
    """Rules are what can happen; what must be true is checked after each of them."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp(prefix="meander-loop-"))

    @initialize(data=st.data(), mechanism=st.sampled_from(["bottom_up", "top_down", "random"]), service=st.booleans())
    def begin(self, data: st.DataObject, mechanism: str, service: bool) -> None:
        rng = cast(np.random.Generator, Chosen(data))
        kind = ServiceWorld if service else LoopWorld
        self.world = kind(self.directory, Ground.drawn(rng), Setting(mechanism, slots=2))
        self.schedule = Schedule(self.world, rng)
        self.schedule.first_queries()

    def _draws(self, data: st.DataObject) -> Schedule:
        """The schedule, drawing from this rule's data."""
        rng = cast(np.random.Generator, Chosen(data))
        self.schedule.rng = self.schedule.moves.rng = rng
        return self.schedule

    @rule(data=st.data())
    def change(self, data: st.DataObject) -> None:
        self._draws(data).change()

    @rule(data=st.data())
    def feed(self, data: st.DataObject) -> None:
        self.world.feed(self._draws(data).rng)

    @rule(slot=st.integers(0, 1))
    def step(self, slot: int) -> None:
        self.schedule.step(slot)

    @rule()
    def poll(self) -> None:
        self.schedule.poll()

    @rule()
    def crash(self) -> None:
        self.schedule.crash()

    @rule(data=st.data())
    def pause(self, data: st.DataObject) -> None:
        self._draws(data).pause()

    @rule()
    def time_passes(self) -> None:
        self.world.clock.now_ms += LONG_MS

    @rule()
    def come_to_rest(self) -> None:
        self.schedule.come_to_rest()

    @precondition(lambda self: hasattr(self, "schedule"))
    @invariant()
    def the_catalog_is_sound(self) -> None:
        none_of(catalog_faults(self.world.catalog))

    def teardown(self) -> None:
        try:
            if hasattr(self, "schedule"):
                rng = np.random.default_rng(0)
                self.schedule.rng = self.schedule.moves.rng = rng
                self.schedule.mend()
                self.schedule.remove_everything()
        finally:
            if hasattr(self, "world"):
                self.world.close()
            shutil.rmtree(self.directory)


_AS_LONG_AS_IT_TAKES: Sequence[HealthCheck] = (HealthCheck.too_slow, HealthCheck.data_too_large)
LoopMachine.TestCase.settings = settings(
    max_examples=60, stateful_step_count=12, deadline=None, suppress_health_check=_AS_LONG_AS_IT_TAKES
)
TestLoop = LoopMachine.TestCase
