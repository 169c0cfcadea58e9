"""The condition of a query: does it run, does it wait, is it paused, and why."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from meander.model.ids import FragmentId, OperatorId
from meander.model.operators import Source, describe
from meander.run.host import HostStatus
from meander.run.reconfigure import GONE
from meander.serve.loop import Loop


@dataclass(frozen=True, slots=True)
class Condition:
    status: str
    """running, waiting, paused or stopping."""
    reason: str | None = None


RUNNING = Condition("running")
STOPPING = Condition("stopping", "what is in flight is finished first")


def condition_of(
    loop: Loop, operators: Iterable[OperatorId], outlets: Iterable[str], status: HostStatus | None
) -> Condition:
    """Of a query with these operators and outlets; the worst that is known."""
    found = tuple(operators)
    return (
        _paused_sink(outlets, status)
        or _paused_stream(loop, found, status)
        or _paused_fragment(loop, found)
        or _unplaced(loop, found)
        or _not_deployed(loop, found)
        or _cut_off(loop, found)
        or RUNNING
    )


def _paused_sink(outlets: Iterable[str], status: HostStatus | None) -> Condition | None:
    delivery = status.delivery if status else None
    for name in outlets:
        outlet = delivery.outlets.get(name) if delivery else None
        if outlet is not None and outlet.paused:
            return Condition("paused", f"its sink cannot take results ({name}): {outlet.paused}")
    return None


def _paused_stream(loop: Loop, operators: tuple[OperatorId, ...], status: HostStatus | None) -> Condition | None:
    if status is None or status.ingest is None:
        return None
    plan = loop.catalog.plan
    specs = (plan[o].spec for o in operators if o in plan.operators)
    for stream in {spec.stream for spec in specs if isinstance(spec, Source)}:
        metrics = status.ingest.streams.get(stream)
        if metrics is not None and metrics.paused:
            return Condition("paused", f"stream {stream} is paused: {metrics.paused}")
    return None


def _paused_fragment(loop: Loop, operators: tuple[OperatorId, ...]) -> Condition | None:
    paused, owner = loop.host.routing.paused, loop.deployer.deployment.owner
    for operator in operators if paused else ():
        fragment = owner.get(operator)
        reason = None if fragment is None else paused.get(fragment)
        if reason is not None:
            gone = reason.startswith(GONE)
            return Condition("waiting" if gone else "paused", f"operator {operator}: {reason}")
    return None


def _unplaced(loop: Loop, operators: tuple[OperatorId, ...]) -> Condition | None:
    plan, nodes = loop.catalog.plan, loop.catalog.placement.nodes
    for operator in operators:
        if operator not in nodes and operator in plan.operators:
            record = plan[operator]
            why = record.reason or "no reason known"
            return Condition("waiting", f"operator {operator} ({describe(record.spec)}) has no place: {why}")
    return None


def _not_deployed(loop: Loop, operators: tuple[OperatorId, ...]) -> Condition | None:
    owner = loop.deployer.deployment.owner
    for operator in operators:
        fragment = owner.get(operator)
        if fragment is None or not (_runs(loop, fragment) or _moves(loop, operator)):
            return Condition("waiting", "it is being deployed")
    return None


def _runs(loop: Loop, fragment: FragmentId) -> bool:
    """Whether a fragment has begun, here or at a site: what no change under way is about to begin has."""
    if loop.reconfigurator.runs_here(fragment):
        return fragment in loop.host.routing.fragments
    changes = (each.change for each in loop.deployer.under_way.values())
    return not any(fragment in c.fragments_after and fragment not in c.fragments_before for c in changes)


def _moves(loop: Loop, operator: OperatorId) -> bool:
    """Whether the operator runs in a fragment that is about to be replaced."""
    return any(
        operator in f.operators
        for each in loop.deployer.under_way.values()
        for f in each.change.fragments_before.values()
    )


def _cut_off(loop: Loop, operators: tuple[OperatorId, ...]) -> Condition | None:
    deployment, mine = loop.deployer.deployment, set(operators)
    fragments = {deployment.owner[o] for o in operators if o in deployment.owner}
    for fragment in fragments:
        for _, channel in deployment.channels_of(fragment):
            if channel.is_cut and channel.receiver == fragment and channel.upstream in mine:
                name = loop.catalog.topology.name
                here, there = (name(deployment.fragments[f].node) for f in (channel.sender, channel.receiver))
                return Condition("waiting", f"there is no way from {here} to {there} at the moment; tuples are kept")
    return None
