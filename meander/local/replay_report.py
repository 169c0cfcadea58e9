"""The report of a replay: each moment of change on its way, and what is true at the end."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from meander.adapt.decisions import Decision
from meander.coordinator.loop.applied import Applied
from meander.run.delivery.latency import Percentiles
from meander.run.host import HostStatus
from meander.run.oracle.comparison import Comparison


@dataclass(frozen=True, slots=True)
class Changed:
    """One moment's events on their way."""

    queued_s: float
    """From when it was due until it was taken up."""
    placement_s: float
    contexts_s: float
    markers_s: float
    state_s: float
    in_effect_s: float
    """From when it was due until all of it was in effect."""
    fragments: int
    """Fragments it touched."""
    state_bytes: int
    aborted: int
    protocol: str


@dataclass(frozen=True)
class ReplayReport:
    """The result of a replay."""

    changes: tuple[Changed, ...]
    unfinished: int
    fragments: int
    operators: int
    queries: int
    sources: int
    latency: dict[str, Percentiles]
    """By phase."""
    status: HostStatus
    drained: bool
    checks: dict[str, Comparison]
    unchecked: str | None
    failures: tuple[str, ...]
    """Reconfigurations that were aborted."""
    refused: tuple[str, ...]
    """Events that made no sense."""
    waiting: tuple[str, ...]
    """Operators without a place at the end."""
    same_queries: bool
    """Whether the slots' streaming queries are the ones that the run began with."""
    notes: tuple[str, ...] = ()
    decisions: tuple[Decision, ...] = ()
    """The decisions of the adaptation loop, if there was one."""

    def quantile(self, name: str, share: float) -> float:
        values = [getattr(c, name) for c in self.changes]
        return float(np.quantile(values, share)) if values else float("nan")

    @property
    def faults(self) -> tuple[str, ...]:
        """Requests that were not fulfilled, in sentences; none if the replay did all of them."""
        taken_in = self.status.ingest.rows if self.status.ingest else 0
        given = self.status.delivery.rows if self.status.delivery else 0
        unknown = set(self.status.delivery.sink_bindings if self.status.delivery else ()) - set(self.checks)
        expected = None if unknown else sum(c.expected for c in self.checks.values())
        found = [
            (bool(self.unfinished), f"{self.unfinished} moments of change did not take effect"),
            (bool(self.refused), f"{len(self.refused)} moments of change were refused"),
            (not taken_in, "no tuple came in, so nothing was tried"),
            (bool(taken_in and not self.status.totals.steps), "no slot has made a step"),
            (bool(taken_in and not given and expected != 0), f"no results, although {taken_in:,} tuples came in"),
            (not self.drained, "not everything that was taken in came out in time"),
            (bool(self.lost or self.double), f"{self.lost} results are lost, {self.double} double"),
            (not self.status.healthy, "something is wrong with the host"),
        ]
        return tuple(sentence for is_so, sentence in found if is_so)

    @property
    def lost(self) -> int:
        return sum(c.lost for c in self.checks.values())

    @property
    def double(self) -> int:
        return sum(c.double for c in self.checks.values())


def changed(due: float, protocol_name: str, applied: Applied) -> Changed:
    outcomes = applied.outcomes
    assert applied.ended is not None
    return Changed(
        applied.started - due,
        applied.placement_s,
        max((o.contexts_s for o in outcomes), default=0.0),
        max((o.markers_s for o in outcomes), default=0.0),
        max((o.state_s for o in outcomes), default=0.0),
        applied.ended - due,
        sum(o.deployed + o.updated + o.undeployed for o in outcomes),
        sum(o.state_bytes for o in outcomes),
        sum(o.reason is not None for o in outcomes),
        protocol_name,
    )
