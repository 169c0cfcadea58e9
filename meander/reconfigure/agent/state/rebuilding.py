"""State that moves by replay: what senders have kept of a fragment's input builds its operators' state at a new node.

The whole old fragment is built anew, as the state of its operators depends on each other; only that of the operator
which moves is taken over. What is kept begins at the fragment's base (see `backup`), and ends at its marker.
"""

from __future__ import annotations

from dataclasses import replace

from meander.deploy.contexts import Handover
from meander.model.errors import InputError
from meander.model.ids import ChannelId, FragmentId, NodeId
from meander.reconfigure.agent.effect import BUFFERS
from meander.reconfigure.agent.in_flight import REBUILT, InFlightChange
from meander.reconfigure.agent.state.upstream_backup import UpstreamBackup
from meander.reconfigure.emulated_paths import Paths
from meander.reconfigure.state.replay import Buffer, ReplayInput, remove_scratch
from meander.reconfigure.validate import ASIDE
from meander.run.host import Host
from meander.run.step.backup_bases import BASES, base_of
from meander.run.store.records.deployment import FragmentRecord
from meander.run.store.records.progress import FloorRecord
from meander.run.store.store import Store


def kept_input(
    change: InFlightChange, handover: Handover, host: Host, paths: Paths, backup: UpstreamBackup | None
) -> ReplayInput | None:
    """The input that the senders of an old fragment keep; None while one of them has no route to the new node."""
    old, store = change.old[handover.source], host.store
    if backup is None or not backup.is_kept(old):
        raise InputError(
            f"the senders of fragment {handover.source} keep nothing of its input; move its state by migration_query"
        )
    buffers: list[Buffer] = []
    for number, (port, table) in enumerate(zip(old.ports, backup.kept(old), strict=True)):
        hops = paths.hops(_sender_node(port, handover, store), handover.destination)
        if hops is None:
            return None
        buffers.append(Buffer(number, table, hops))
    floor = store.record(FloorRecord, handover.source)
    return ReplayInput(
        replace(old, fragment=change.rebuilt(handover)),
        buffers,
        host.stepper.runner,
        base=base_of(handover.source),
        reached=store.exchange.watermarks(old.ports).tolist(),
        floor=None if floor is None else floor.watermark_ms,
        idle_timeout_ms=host.options.idle_timeout_ms,
    )


def remove_unfinished(store: Store) -> None:
    """Removes what moves that a crash ended have left: state that had begun to arrive, and what replays used."""
    channels = [ChannelId(c) for c in store.views.channels.by_id if ASIDE <= c < BUFFERS]
    built = [FragmentId(f) for f in store.state.fragments() if REBUILT <= f < BASES]
    if channels or built:
        remove_scratch(store, channels, built)


def _sender_node(port: ChannelId, handover: Handover, store: Store) -> NodeId:
    """Where a channel's tuples are kept. Those of a source are at the source's own node, where its reader is."""
    sender = store.exchange.spec(port).sender
    record = None if sender is None else store.record(FragmentRecord, sender)
    return handover.origin if record is None else record.fragment.node
