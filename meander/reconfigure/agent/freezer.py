"""Freezes paused fragments of a change: they count as drained where their last commit left them.

One commit says so, and puts the marker behind all that they have sent, for those who wait for it there. What they had
not consumed stays in their channels, for their successors (`deploy/freezing.py` says when that is possible).
"""

from __future__ import annotations

from collections.abc import Iterable

from meander.deploy.fragments import DeploymentChange
from meander.deploy.freezing import heirs, may_freeze
from meander.deploy.markers import Marker
from meander.model.ids import FragmentId
from meander.reconfigure.agent.in_flight import InFlightChange
from meander.run.channels.base import ChannelAppend
from meander.run.fragments.routing import Pause
from meander.run.host import Host
from meander.run.store.commit import Commit
from meander.run.store.records.reconfigurations import DrainedRecord


def freeze(
    host: Host, change: DeploymentChange, marker: Marker, fragments: Iterable[FragmentId]
) -> tuple[set[FragmentId], str | None]:
    """Freezes what is paused and may be frozen; says which, and why the change cannot wait for another one."""
    routing, frozen = host.routing, set[FragmentId]()
    for fragment in fragments:
        pause = routing.pauses.get(fragment)
        if pause is None or pause.cause is None or fragment in routing.drained:
            continue
        if may_freeze(change, fragment):
            if _freeze(host, marker, fragment):
                frozen.add(fragment)
        elif pause.sets_apart:
            return frozen, f"fragment {fragment} is paused and cannot be joined with others: {pause.reason}"
    return frozen, None


def _freeze(host: Host, marker: Marker, fragment: FragmentId) -> bool:
    """Says whether it did: the fragment may have gone on meanwhile."""
    exchange, routing = host.store.exchange, host.routing
    with host.between_steps([fragment]) as slots:
        if fragment not in routing.pauses or fragment in routing.drained:
            return False
        told = {entry.fragment for entry in marker.entries}
        channels = [w.channel for wires in routing.fragments[fragment].outputs for w in wires]
        appends = [ChannelAppend.one(c, marker=marker) for c in channels if exchange.spec(c).receiver in told]
        frozen = DrainedRecord(marker.reconfiguration, fragment, is_frozen=True)
        host.store.commit(Commit(appends=tuple(appends), records=(frozen,)))
        routing.drain({fragment: marker.reconfiguration})
    host.wake(slots)
    return True


def pauses_after(host: Host, change: InFlightChange) -> dict[FragmentId, Pause]:
    """Fragments that begin as paused: with operators that failed, or on nodes that are gone."""
    pauses, local, frozen = host.routing.pauses, change.part.local, change.frozen
    failed = {f: pauses[f].operators for f in frozen if f in pauses and pauses[f].sets_apart}
    kept = (f for f in local.fragments_after if f in pauses and (pauses[f].cause is None or change.is_forked))
    return {f: pauses[f] for f in kept} | {new: pauses[old] for new, old in heirs(local, failed).items()}
