"""The cost of a transition: its time in consecutive parts, its messages and bytes, each counted once."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from meander.adapt.transition_prediction import AT_ONCE, BESIDE, WITH_STATE, TransitionPrediction
from meander.coordinator.loop.loop import PlacementLoop
from meander.model.ids import OperatorId
from meander.place.engine import BatchReport
from meander.reconfigure.outcome import ReconfigurationOutcome


@dataclass(frozen=True, slots=True)
class Moved:
    """One operator's share. Operators that move together have the same times."""

    operator: OperatorId
    kind: str
    waited_s: float
    """For operators that had to move before it, and for windows that the old operator had still to answer."""
    migration_s: float
    """The rest, until it ran at its new place."""
    state_bytes: int
    overlapped: bool
    """Whether it ran at both places for a while, and moved no state."""


@dataclass(slots=True)
class Cost:
    """The whole transition, with all aborted steps."""

    selection_s: float = 0.0
    placement_s: float = 0.0
    migration_s: float = 0.0
    """Until the last operator ran at its new place, without placing and without waiting for windows."""
    waiting_s: float = 0.0
    """While nothing was left to do but to wait for windows that had begun."""
    windows_s: float = 0.0
    """The part of it that the windows needed by themselves, if event time runs like the clock."""
    tidying_s: float = 0.0
    """Afterwards: fragments that were cut for the transition grow together again."""
    total_s: float = 0.0
    """From the decision to the last effect, waiting and tidying included."""
    steps: int = 0
    moved: int = 0
    placement_messages: int = 0
    placement_bytes: int = 0
    control_messages: int = 0
    control_bytes: int = 0
    state_bytes: int = 0
    overlap_bytes: int = 0
    """Input that operators got at both places."""
    contexts: int = 0
    """Deployment contexts that nodes got."""
    operators: list[Moved] = field(default_factory=list)
    reasons: Mapping[OperatorId, str] = field(default_factory=dict)
    """The reasons why operators did not move as the protocol would have it."""

    @property
    def seconds(self) -> float:
        """Until the last operator ran at its new place."""
        return self.selection_s + self.placement_s + self.migration_s + self.waiting_s

    @property
    def bytes(self) -> int:
        """All bytes that were sent for it."""
        return self.placement_bytes + self.control_bytes + self.state_bytes + self.overlap_bytes

    @property
    def remark(self) -> str:
        """For the log: what did not go as the protocol would have it."""
        found = dict.fromkeys(self.reasons.values())
        return "; ".join(
            f"operator {', '.join(str(o) for o, r in self.reasons.items() if r == reason)}: {reason}"
            for reason in found
        )

    def took(self, prediction: TransitionPrediction | None) -> dict[str, Any]:
        """The record of the transition, with what was predicted."""
        return {
            "seconds": round(self.total_s, 3),
            "bytes": self.bytes,
            "overlap_s": round(self.waiting_s, 3),
            "parts_s": {
                part: round(getattr(self, f"{part}_s"), 3)
                for part in ("selection", "placement", "migration", "waiting", "tidying")
            },
            "state_bytes": self.state_bytes,
            "overlap_bytes": self.overlap_bytes,
            "control_bytes": self.control_bytes,
            "placement_bytes": self.placement_bytes,
            "operators": [
                {
                    "operator": int(m.operator),
                    "kind": m.kind,
                    "way": BESIDE if m.overlapped else WITH_STATE if m.state_bytes else AT_ONCE,
                    "state_bytes": m.state_bytes,
                }
                for m in self.operators
            ],
        } | ({"predicted": prediction.as_json()} if prediction is not None else {})

    def count_placement(self, report: BatchReport, seconds: float) -> None:
        self.placement_s += seconds
        self.placement_messages += report.messages
        self.placement_bytes += report.message_bytes

    def count_step(
        self,
        outcomes: Sequence[ReconfigurationOutcome],
        seconds: float,
        kinds: Mapping[OperatorId, str],
        waited_s: float,
    ) -> None:
        """One step that took so long; `kinds` are the operators that moved in it, `waited_s` since the start."""
        windows = max((o.waiting_s for o in outcomes if o.reason is None), default=0.0)
        self.waiting_s += windows
        self.windows_s += max((o.windows_s for o in outcomes if o.reason is None), default=0.0)
        self.migration_s += max(0.0, seconds - windows)
        for outcome in outcomes:
            self.state_bytes += outcome.state_bytes
            self.control_messages += outcome.control_messages
            self.control_bytes += outcome.control_bytes
            self.contexts += outcome.deployed + outcome.updated + outcome.undeployed
            if outcome.reason is not None:
                continue
            for operator in outcome.operators:
                if operator in kinds:
                    self.operators.append(
                        Moved(
                            operator,
                            kinds[operator],
                            waited_s + outcome.waiting_s,
                            outcome.makespan_s - outcome.waiting_s,
                            outcome.moved.get(operator, 0),
                            outcome.overlapped,
                        )
                    )

    def add(self, other: Cost) -> None:
        """Takes over what another run of the same transition took."""
        for name in ("placement_s", "migration_s", "waiting_s", "windows_s", "placement_messages", "placement_bytes"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for name in ("control_messages", "control_bytes", "state_bytes", "overlap_bytes", "contexts"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.operators = [*other.operators, *self.operators]


def overlap_bytes(loop: PlacementLoop, operators: Collection[OperatorId]) -> int:
    """The input that operators which began beside have got on this host since."""
    deployment, plan, inside = loop.deployer.deployment, loop.catalog.plan, set(operators)
    exchange = loop.host.store.exchange
    known, found = set(exchange.channels()), 0.0
    for fragment in {deployment.owner[o] for o in operators if o in deployment.owner}:
        for _, channel in deployment.channels_of(fragment):
            enters = channel.receiver == fragment and channel.upstream not in inside
            if enters and channel.id in known and channel.upstream in plan.operators:
                found += exchange.counters(channel.id).appended_tuples * plan[channel.upstream].row_bytes
    return round(found)
