"""Retained bindings: the operators of running fragments, for as long as they run, because the global query plan may
have moved on.

A plan changes at once, running fragments follow later. When a host comes back in between, it needs the operators of the
fragments that still run, also those that the plan has dropped or reads by other inputs by now. They are kept with the
plan, by fragment and version; nothing is copied, because an operator never changes.

Memory is enough for that: a process that ends takes its plan along, and the next one makes a plan with every operator
that the store's records name (`coordinator/ledger/recovery.py` follows the log of queries, and keeps operators of
stopped queries for as long as the store runs them). Operators never change their inputs, but for parts of joins: what
their fragments are made of is in the store, as at sites, and is remembered from there.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import cast

from meander.deploy.fragments import Fragment
from meander.model.global_plan import GlobalPlan, PlanOperator
from meander.model.ids import FragmentId, OperatorId
from meander.run.fragments.routing import Installed
from meander.run.fragments.template import BoundFragment

Version = tuple[FragmentId, int]


@dataclass(frozen=True, slots=True)
class RetainedBinding:
    """A fragment as it was bound, and the records of its operators and of those it reads."""

    bound: BoundFragment
    records: Mapping[OperatorId, PlanOperator]


def remember(plan: GlobalPlan, installed: Iterable[Installed], fragments: Mapping[FragmentId, Fragment]) -> None:
    """Keeps what fragments are made of that are about to run."""
    for each in installed:
        operators = (*fragments[each.fragment].operators, *each.bound.ports)
        plan.former[each.fragment, each.version] = RetainedBinding(each.bound, {o: plan[o] for o in operators})


def forget(plan: GlobalPlan, fragments: Iterable[Fragment]) -> None:
    """Releases bindings of fragments that will not run any more."""
    for fragment in fragments:
        plan.former.pop((fragment.id, fragment.version), None)


def keep_only(plan: GlobalPlan, versions: Collection[Version]) -> None:
    """Releases bindings of fragments that never began because the host ended."""
    for version in plan.former.keys() - versions:
        del plan.former[version]


def bounds_of(plan: GlobalPlan) -> dict[Version, BoundFragment]:
    """The retained bindings of fragments."""
    return {version: cast(RetainedBinding, former).bound for version, former in plan.former.items()}


def with_former(plan: GlobalPlan) -> GlobalPlan:
    """The plan with all operators that something which runs is made of."""
    known: dict[OperatorId, PlanOperator] = {}
    for former in plan.former.values():
        known.update(cast(RetainedBinding, former).records)
    both = GlobalPlan()
    both.operators = {**known, **plan.operators}
    return both
