"""A dry run of changes: they are placed and turned into reconfigurations that take effect at once, without a host.

What a change touches is decided before anything runs, so it can be counted without Spark.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from meander.deploy.contexts import Reconfiguration
from meander.deploy.deployer import Deployer
from meander.deploy.fragments import Placed
from meander.deploy.protocols import ISQD, Protocol
from meander.local.placement_replay import Setting, batches_of
from meander.model.errors import InputError
from meander.model.events import ChangeEvent, QueryAdded
from meander.model.ids import OperatorId
from meander.place.catalog import Catalog
from meander.place.engine import Engine
from meander.place.mechanisms import mechanism


@dataclass(frozen=True)
class Touched:
    """The effect of one moment's events."""

    moved: tuple[OperatorId, ...]
    reconfigurations: tuple[Reconfiguration, ...]
    rerouted: int
    """Channels that only take another way."""

    @property
    def fragments(self) -> int:
        return sum(len(r.contexts) for r in self.reconfigurations)

    @property
    def states_moved(self) -> int:
        """Operators whose state goes to another node."""
        return sum(h.travels for r in self.reconfigurations for h in r.handovers)


class LocalDryRun:
    """The queries of a setting, placed; `changes` applies its events one moment after the other."""

    def __init__(self, setting: Setting, mechanism_name: str = "bottom_up", protocol: Protocol = ISQD) -> None:
        self.setting = setting
        self.catalog = Catalog(setting.topology, dict(setting.streams), dict(setting.sinks))
        self.engine = Engine(self.catalog, mechanism(mechanism_name))
        placed = Placed(self.catalog.plan, self.catalog.placement, self.catalog.topology)
        self.deployer = Deployer(placed, protocol=protocol)
        self.apply([QueryAdded(0, q) for q in setting.queries])

    def apply(self, events: Sequence[ChangeEvent]) -> Touched:
        report = self.engine.run(events)
        if report.unplaced:
            operator, reason = next(iter(report.unplaced.items()))
            raise InputError(f"operator {operator} could not be placed: {reason}")
        self.deployer.note(report.difference.operators, report.difference.rerouted)
        begun, rerouted = self.deployer.begin()
        for each in begun:
            self.deployer.finished(each.number)
        return Touched(tuple(m.operator for m in report.moves), tuple(begun), len(rerouted))

    def changes(self, most: int | None = None) -> Iterator[Touched]:
        for batch in list(batches_of(self.setting.events, None))[:most]:
            yield self.apply(batch)

    def node_of(self, operator: OperatorId) -> str:
        return self.catalog.topology.name(self.catalog.placement.nodes[operator])

    def operators(self, kind: type) -> list[OperatorId]:
        """Operators of a kind."""
        return [o for o, record in self.catalog.plan.operators.items() if isinstance(record.spec, kind)]
