"""A share under way on a host: what was here, what will be, and how far it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from meander.deploy.contexts import Handover
from meander.deploy.fragments import Channel
from meander.deploy.freezing import Fork
from meander.model.ids import ChannelId, OperatorId
from meander.reconfigure.in_flight import InFlightChange
from meander.reconfigure.part import Part
from meander.reconfigure.state.pull import StatePull
from meander.run.fragments.template import BoundFragment
from meander.run.step.stage_scheduler import STATES_PER_STAGE
from meander.run.store.records.reconfigurations import PartRecord


def keys_of(operator: OperatorId, bound: BoundFragment) -> list[int]:
    """The numbers of an operator's state tables in a fragment."""
    stage = next(stage for stage, o in bound.stateful.items() if o == operator)
    return [stage * STATES_PER_STAGE + t for t in range(len(bound.template.stages[stage].states))]


@dataclass
class PartInFlight(InFlightChange):
    """Like any course, but state may come from fragments that are not here."""

    share: Part | None = None
    is_marked: bool = False
    fetched: Mapping[str, Any] | None = None
    """What the coordinator said when things were to be fetched; None before."""
    added: list[int] = field(default_factory=list)
    """Logs that were begun here to take others over: they go when the change is taken back."""

    @property
    def of(self) -> Part:
        assert self.share is not None
        return self.share

    def keys(self, handover: Handover) -> dict[int, int]:
        if not handover.travels:
            return super().keys(handover)
        return {key: key for key in keys_of(handover.operator, self.new[handover.target].bound)}

    @property
    def forks(self) -> list[Fork]:
        """None by itself: where a log begins with what waits in another one, everybody has to agree on that."""
        return []

    @property
    def skipped(self) -> list[Channel]:
        """None by itself: readers are told where to begin."""
        return []

    @property
    def pulls(self) -> list[StatePull]:
        return [move for move in self.moves.values() if isinstance(move, StatePull)]

    @property
    def record(self) -> PartRecord:
        return PartRecord(
            self.number, self.of.to_json(), self.is_marked, self.fetched, tuple(map(ChannelId, self.added))
        )
