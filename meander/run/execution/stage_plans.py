"""The plans of a host's stages: ready before the first tuples come, given up when nothing uses them any more."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from pyspark.sql import SparkSession

from meander.run.execution.prepared import PreparedRunner
from meander.run.execution.runner import Runner
from meander.run.execution.stage_use import StageUse
from meander.run.execution.tiered import TieredRunner
from meander.run.fragments.routing import Installed, Routing
from meander.run.fragments.template import Stage

EVICT_S = 60.0
"""The interval at which unused plans are dropped."""


class StagePlans:
    """Those of Meander's own runner, or of one that a user brings and looks after."""

    def __init__(self, routing: Routing, runner: Runner | None, spark: Callable[[], SparkSession]) -> None:
        self._routing = routing
        self._own: TieredRunner | None = None
        if runner is None:
            runner = self._own = TieredRunner(PreparedRunner(spark()))
        self.runner: Runner = runner
        self._stages: tuple[int, tuple[Stage, ...]] = (-1, ())
        """The stages of all fragments, each once, and the version of the routing table that they are of."""
        self._evict_at = time.monotonic() + EVICT_S

    def stages(self) -> tuple[Stage, ...]:
        """The stages of all fragments that are installed, each once."""
        version, found = self._stages
        if version != (now := self._routing.version):
            templates = {f.bound.template.key: f.bound.template for f in self._routing.fragments.values()}
            found = tuple({s.key: s for t in templates.values() for s in t.stages}.values())
            self._stages = now, found
        return found

    def prepare(self, fragments: Iterable[Installed]) -> None:
        """Prepares the plans of fragments, also of such that are to come. Prepared plans cost nothing."""
        self.runner.warm_up(stage for f in fragments for stage in f.bound.template.stages)

    def are_ready(self, fragments: Iterable[Installed]) -> bool:
        """Whether the plans of these fragments are prepared."""
        return self.runner.is_warm(stage for f in fragments for stage in f.bound.template.stages)

    def evict_unused(self) -> None:
        """Plans of fragments that are gone are given up after a while."""
        if self._own is not None and time.monotonic() >= self._evict_at:
            self._own.evict(self.stages())
            self._evict_at = time.monotonic() + EVICT_S

    def use(self) -> StageUse | None:
        """The use of Spark by the stages; None where a user's runner runs them."""
        return None if self._own is None else self._own.use(self.stages())

    def close(self) -> None:
        if self._own is not None:
            self._own.close()
