"""The times in the memories of a host's join parts: from them the coordinator knows when a retired part has ended."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from meander.model.ids import OperatorId
from meander.run.host import Host
from meander.run.operators.state import StateTable
from meander.run.step.stage_scheduler import STATES_PER_STAGE

NEVER, EVER = -(1 << 62), 1 << 62


@dataclass(frozen=True, slots=True)
class MemorySpan:
    """The oldest and the newest time that an operator's memory is about; (EVER, NEVER) for an empty one."""

    version: int
    """The version of the fragment that it was looked at in."""
    oldest: int
    newest: int


def memories(host: Host, operators: Iterable[OperatorId] | None = None) -> dict[OperatorId, MemorySpan]:
    """The memories of these operators, as far as they are here; of all join parts if none are named."""
    wanted = None if operators is None else set(operators)
    found: dict[OperatorId, MemorySpan] = {}
    for fragment, installed in host.routing.fragments.items():
        for stage, operator in installed.bound.stateful.items():
            states = installed.bound.template.stages[stage].states
            if operator in wanted if wanted is not None else _is_part(states):
                keys = [stage * STATES_PER_STAGE + table for table in range(len(states))]
                buckets = [b for key in keys for b in host.store.state.buckets(fragment, key)]
                oldest, newest = min(buckets, default=EVER), max(buckets, default=NEVER)
                found[operator] = MemorySpan(installed.version, oldest, newest)
    return found


def _is_part(states: Sequence[StateTable]) -> bool:
    """Whether these tables keep tuples of two sides: those of a join that may be cut anew, or taken over."""
    return [table.name for table in states] == ["left", "right"]


def memory_rows(host: Host) -> dict[OperatorId, tuple[int, int, int]]:
    """The memories of all join parts here as rows: version, oldest and newest time."""
    return {o: (m.version, m.oldest, m.newest) for o, m in memories(host).items()}


def memories_of(rows: Iterable[Mapping[OperatorId, tuple[int, int, int]]]) -> dict[OperatorId, MemorySpan]:
    """The memories that several hosts report."""
    return {operator: MemorySpan(*row) for each in rows for operator, row in each.items()}
