"""Serialised fragments: their operators and the neighbours of these, enough to bind them anywhere.

A site has no plan of its own. With every fragment come the operators that it runs, those it reads and those that read
it; the site keeps them beside the fragment, so that it can start again without asking anybody.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from meander.deploy.fragments import Channel, ChannelKey, Fragment
from meander.model.global_plan import GlobalPlan, PlanOperator
from meander.model.ids import FragmentId, OperatorId
from meander.model.plain_json import from_plain, to_plain
from meander.model.signature import Signature
from meander.run.fragments.bindings import first_slot
from meander.run.fragments.retained_bindings import remember
from meander.run.host import Host
from meander.run.installation import Installation, install
from meander.run.store.records.deployment import ChannelRecord, FragmentRecord, SerialisedFragmentRecord
from meander.run.store.store import Store


def serialised(plan: GlobalPlan, fragment: Fragment) -> list[Any]:
    """The operators that binding a fragment looks at, as JSON."""
    readers = [r for o in fragment.operators for r in plan[o].readers]
    near = dict.fromkeys((*fragment.operators, *readers, *(i for o in fragment.operators for i in plan[o].inputs)))
    return [
        [o, to_plain(plan[o].spec), to_plain(plan[o].schema), list(plan[o].inputs), list(plan[o].readers)] for o in near
    ]


def plan_of(rows: Iterable[list[Any]]) -> GlobalPlan:
    """A plan of just these operators."""
    plan = GlobalPlan()
    for number, spec, schema, inputs, readers in rows:
        record = PlanOperator(
            OperatorId(number),
            from_plain(spec),
            from_plain(schema),
            Signature(""),
            tuple(map(OperatorId, inputs)),
            readers={OperatorId(r): None for r in readers},
        )
        plan.operators[record.id] = record
    return plan


def install_serialised(
    made: Mapping[FragmentId, list[Any]],
    fragments: Iterable[Fragment],
    channels: Mapping[ChannelKey, Channel],
    slots: Mapping[FragmentId, int],
) -> Installation:
    """Fragments, each bound by what it is made of."""
    found: list[Installation] = []
    for fragment in fragments:
        mine = {key: c for key, c in channels.items() if fragment.id in (c.sender, c.receiver)}
        found.append(install(plan_of(made[fragment.id]), [fragment], mine, slots))
    ingest: dict[tuple[str, str], tuple[Any, ...]] = {}
    for each in found:
        for key, entries in each.ingest.items():
            ingest[key] = (*ingest.get(key, ()), *entries)
    specs = {s.channel: s for each in found for s in each.channels}
    return Installation(
        tuple(specs.values()),
        tuple(f for each in found for f in each.fragments),
        ingest,
        {o: c for each in found for o, c in each.results.items()},
    )


def remember_serialised(plan: GlobalPlan, store: Store) -> None:
    """Keeps with the plan what fragments of this host are made of whose operators may have other inputs by now."""
    fragments = store.records(FragmentRecord)
    for number, record in store.records(SerialisedFragmentRecord).items():
        found = fragments.get(number)
        if found is not None and (number, found.fragment.version) not in plan.former:
            own = plan_of(list(record.operators))
            (installed,) = install(own, [found.fragment], _channels_of(found.fragment, store), {}).fragments
            remember(own, [installed], {number: found.fragment})
            plan.former.update(own.former)


def _channels_of(fragment: Fragment, store: Store) -> dict[ChannelKey, Channel]:
    found = (record.channel for record in store.records(ChannelRecord).values())
    return {(c.upstream, c.receiver): c for c in found if fragment.id in (c.sender, c.receiver)}


def take_up(host: Host) -> None:
    """Installs the fragments that ran here, as the store says."""
    store = host.store
    fragments = [record.fragment for record in store.records(FragmentRecord).values()]
    found = [record.channel for record in store.records(ChannelRecord).values()]
    made = {f: list(record.operators) for f, record in store.records(SerialisedFragmentRecord).items()}
    slots = {f.id: first_slot(f.id, host.routing.slots) for f in fragments}
    host.install(install_serialised(made, fragments, {(c.upstream, c.receiver): c for c in found}, slots))
