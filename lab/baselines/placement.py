"""The baselines of incremental placement: re-placing whole shared plans, one change at a time or in batches.

All approaches run the same engine with the same mechanism. A baseline only widens the entries of the change log: from
the operators that a change made invalid to the whole shared plans these belong to.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from meander.model.global_plan import GlobalPlan, OperatorState
from meander.model.ids import SharedPlanId
from meander.place.catalog import Catalog
from meander.place.changelog import Entry
from meander.place.engine import Engine, Widening
from meander.place.mechanisms import mechanism

_T = TypeVar("_T")


def whole_plans(plan: GlobalPlan, entries: list[Entry]) -> list[Entry]:
    """One entry per shared plan that has an invalid part, with all its operators to be placed anew."""
    causes: dict[SharedPlanId, dict[str, None]] = {}
    members = plan.plans
    for entry in entries:
        for operator in (*entry.operators, *(reader for _, reader in entry.edges)):
            if operator in plan.operators:
                causes.setdefault(plan[operator].plan, {})[entry.cause] = None
    found: list[Entry] = []
    for shared, why in causes.items():
        operators = frozenset(members[shared])
        for operator in operators:
            if plan[operator].state is OperatorState.PLACED:
                plan[operator].become(OperatorState.TO_BE_REPLACED)
        found.append(Entry(operators, frozenset(), "; ".join(why)))
    return found


@dataclass(frozen=True, slots=True)
class Approach:
    """The handling of changes: the number at a time, the number of amenders, and the operators that are placed anew."""

    name: str
    batch: int
    amenders: int
    widening: Widening | None = None

    def engine(self, catalog: Catalog, mechanism_name: str, *, control: str = "optimistic") -> Engine:
        return Engine(
            catalog, mechanism(mechanism_name), amenders=self.amenders, control=control, widening=self.widening
        )


def incremental(batch: int, amenders: int) -> Approach:
    """Only what a change made invalid, in batches."""
    return Approach("incremental", batch, amenders)


def serial_holistic() -> Approach:
    """One change at a time, by one amender, the whole shared plan."""
    return Approach("serial holistic", 1, 1, whole_plans)


def batched_holistic(batch: int, amenders: int) -> Approach:
    """Batches of changes, whole shared plans, several at the same time."""
    return Approach("batched holistic", batch, amenders, whole_plans)


def batches(changes: Iterable[Sequence[_T]], size: int) -> Iterator[list[_T]]:
    """Changes, each one or more events that belong together, `size` changes at a time."""
    batch: list[_T] = []
    count = 0
    for change in changes:
        batch.extend(change)
        count += 1
        if count == size:
            yield batch
            batch, count = [], 0
    if batch:
        yield batch
