"""The history of reconfigurations, as people see it: the start of each, its moves, the time of its phases."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from meander.coordinator.loop.loop import PlacementLoop
from meander.deploy.contexts import Reconfiguration
from meander.model.ids import OperatorId
from meander.model.topology.graph import Topology
from meander.reconfigure.outcome import ReconfigurationOutcome


def moves_of(reconfiguration: Reconfiguration, topology: Topology) -> list[dict[str, Any]]:
    """Operators whose node the reconfiguration changes; None is nowhere."""
    change = reconfiguration.change
    before = {o: f.node for f in change.fragments_before.values() for o in f.operators}
    after = {o: f.node for f in change.fragments_after.values() for o in f.operators}
    return [
        {
            "operator": int(o),
            "from": topology.name(before[o]) if o in before else None,
            "to": topology.name(after[o]) if o in after else None,
        }
        for o in sorted({*before, *after})
        if before.get(o) != after.get(o)
    ]


@dataclass(slots=True)
class ChangeHistory:
    """Compares reconfigurations in flight with the last reading, and reports those that began and ended."""

    loop: PlacementLoop
    why: Callable[[Iterable[OperatorId]], str]
    """The cause of changes to these operators."""
    open: dict[int, dict[str, Any]] = field(default_factory=dict)
    """Records of those in flight."""

    def adopt(self, records: Iterable[dict[str, Any]]) -> None:
        """Records that an earlier process left; those in flight go on here or are ended."""
        self.open.update((r["number"], r) for r in records if r["status"] == "under_way")

    def begun(self, now_ms: int) -> list[dict[str, Any]]:
        """Records of reconfigurations that began since the last time."""
        found: list[dict[str, Any]] = []
        for number, each in self.loop.deployer.under_way.items():
            if number not in self.open:
                record = self._record(number, each, now_ms)
                self.open[number] = record
                found.append(record)
        return found

    def ended(self, outcomes: Iterable[ReconfigurationOutcome], now_ms: int) -> list[dict[str, Any]]:
        """Records of those that ended: with their outcome, or aborted when a newer change came."""
        told = {o.number: o for o in outcomes}
        reasons = {f.number: f.reason for f in self.loop.deployer.failures[-100:]}
        found: list[dict[str, Any]] = []
        for number in [n for n in self.open if n not in self.loop.deployer.under_way]:
            record = self.open.pop(number)
            outcome = told.get(number)
            reason = outcome.reason if outcome is not None else reasons.get(number)
            record = {**record, "ended_ms": now_ms, "status": "committed" if reason is None else "aborted"}
            if reason is not None:
                record["reason"] = reason
            if outcome is not None:
                phases = {"contexts": outcome.contexts_s, "markers": outcome.markers_s, "state": outcome.state_s}
                record["phases_ms"] = record["phases_ms"] | {name: _ms(s) for name, s in phases.items()}
                record["state_bytes"], record["pause_ms"] = outcome.state_bytes, _ms(outcome.state_s)
            found.append(record)
        return found

    def _record(self, number: int, each: Reconfiguration, now_ms: int) -> dict[str, Any]:
        applied = next((a for a in self.loop.pending if number in a.open), None)
        placement_s = 0.0 if applied is None else applied.placement_s
        change = each.change
        return {
            "number": number,
            "began_ms": now_ms,
            "ended_ms": None,
            "cause": self.why(change.operators),
            "phases_ms": {"placement": _ms(placement_s), "contexts": None, "markers": None, "state": None},
            "fragments": len(change.fragments),
            "moves": moves_of(each, self.loop.catalog.topology),
            "state_bytes": 0,
            "pause_ms": None,
            "status": "under_way",
        }


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 3)
