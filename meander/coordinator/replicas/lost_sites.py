"""A site of which nothing is left: the facts that others know of it, and the losses. In the core's thread."""

from __future__ import annotations

from collections.abc import Collection

from meander.coordinator.core.core import Core
from meander.deploy.contexts import reconfiguration
from meander.deploy.fragments import DeploymentChange
from meander.model.ids import ChannelId
from meander.model.operators import STATEFUL, Sink, Source, describe
from meander.reconfigure.driver.deployment_records import recorded
from meander.reconfigure.driver.driver import Driver
from meander.reconfigure.part import Part
from meander.run.channels.flight.proof import HOME
from meander.run.fragments.retained_bindings import with_former
from meander.run.store.records.deployment import RemoteFragmentRecord

Known = tuple[Part, dict[str, list[ChannelId]], list[str]]


def what_is_known(core: Core, driver: Driver, site: str) -> Known:
    """The fragments of a site as a change that begins them, its channels by the site at their other end, and what is
    lost.

    They are those that were decided last: what is under way, such as its operators leaving it, has not happened.
    """
    deployment = recorded(driver.host.store)
    sites = {f: record.site for f, record in driver.host.store.records(RemoteFragmentRecord).items()}
    plan = with_former(core.loop.catalog.plan)
    fragments = {f: each for f, each in deployment.fragments.items() if sites.get(f) == site}
    channels = {k: c for k, c in deployment.channels.items() if {c.sender, c.receiver} & fragments.keys()}
    change = DeploymentChange({}, fragments, {}, channels)
    parts = driver.participants.parts_again(reconfiguration(0, change, plan), deployment, plan)
    ends: dict[str, list[ChannelId]] = {}
    for channel in channels.values():
        other = next((f for f in (channel.sender, channel.receiver) if f not in fragments), None)
        if other is not None:
            ends.setdefault(sites.get(other, HOME), []).append(channel.id)
    stateful = [o for f in fragments.values() for o in f.operators if isinstance(plan[o].spec, STATEFUL)]
    lost = [f"the state of operator {o} ({describe(plan[o].spec)})" for o in stateful]
    if fragments:
        lost.append(f"tuples on their way inside site {site}, and results that had not left it")
    return parts[site], ends, lost


def lost_with_nodes(core: Core, nodes: Collection[str]) -> list[str]:
    """The sources and sinks on nodes that nobody has any more."""
    topology, plan = core.loop.catalog.topology, core.loop.catalog.plan
    found: list[str] = []
    for operator, record in plan.operators.items():
        if not isinstance(record.spec, Source | Sink) or record.pin is None:
            continue
        if (name := topology.name(record.pin)) in nodes:
            queries = ", ".join(sorted(str(q) for q in plan.queries if operator in plan.serving(q)))
            what = describe(record.spec) + ("" if isinstance(record.spec, Source) else f" at {name}")
            found.append(f"{what}, of query {queries}, which waits for a site with that node or can be stopped")
    return found
