"""A host's report about itself, for judging queries: the coordinator's own one directly, those of sites with
heartbeats."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import astuple, dataclass, field
from typing import TYPE_CHECKING, Any

from meander.model.ids import ChannelId, FragmentId, OperatorId
from meander.run.reporting.backlog import ChannelFlow

if TYPE_CHECKING:
    from meander.run.host import HostStatus  # which brings Spark along
    from meander.run.store.store import Store

MOST = 200
"""Entries of each kind in a heartbeat; of channels, those in which something has waited the longest; of states, the
largest."""
MOST_MEMORIES = 2_000
Channels = Mapping[tuple[str, str], tuple[ChannelId, ...]]


@dataclass(frozen=True, slots=True)
class HostReport:
    problems: tuple[str, ...] = ()
    halted: str | None = None
    """The reason why nothing runs there, if nothing does."""
    fragments: Mapping[FragmentId, str] = field(default_factory=dict)
    """The paused fragments, with the reasons; likewise the next two."""
    sink_bindings: Mapping[str, str] = field(default_factory=dict)
    streams: Mapping[str, str] = field(default_factory=dict)
    quiet_ms: Mapping[str, int] = field(default_factory=dict)
    """By stream that is read there: how long it has given nothing."""
    flows: Mapping[ChannelId, ChannelFlow] = field(default_factory=dict)
    memories: Mapping[OperatorId, tuple[int, int, int]] = field(default_factory=dict)
    """Of join parts: the version of their fragment, the oldest and the newest time that their memory is about."""
    state_bytes: Mapping[FragmentId, int] = field(default_factory=dict)
    """The size of fragments' state, where there is some."""
    stands_in: str = ""
    """The keeper at which a replica goes on in place of the site, if one does."""
    not_reached: Mapping[str, str] = field(default_factory=dict)
    """The streams and sinks that only the machine of the site reaches, with the reasons, where a replica goes on."""
    lagging: str = ""
    """In words, the replicas that are not in step."""

    @staticmethod
    def of(
        status: HostStatus,
        flows: Mapping[ChannelId, ChannelFlow],
        ingest: Channels,
        memories: Mapping[OperatorId, tuple[int, int, int]] | None = None,
        state_bytes: Mapping[FragmentId, int] | None = None,
    ) -> HostReport:
        sink_bindings = status.delivery.sink_bindings.items() if status.delivery else ()
        streams = status.ingest.streams.items() if status.ingest else ()
        quiet: dict[str, int] = {}
        for (stream, _), channels in ingest.items():
            for channel in channels:
                if channel in flows:
                    quiet[stream] = min(quiet.get(stream, flows[channel].quiet_ms), flows[channel].quiet_ms)
        return HostReport(
            tuple(status.problems),
            status.halted,
            {fragment: str(reason) for fragment, reason in status.paused.items()},
            {name: binding.paused for name, binding in sink_bindings if binding.paused},
            {name: reason for name, stream in streams if (reason := stream.paused or stream.waits)},
            quiet,
            flows,
            memories or {},
            state_bytes or {},
        )

    def as_json(self) -> dict[str, Any]:
        """The part of a heartbeat; small, however much runs there."""
        waiting = sorted(self.flows.items(), key=lambda each: -each[1].waits_ms)
        largest = sorted(self.state_bytes.items(), key=lambda each: -each[1])
        return {
            "halted": self.halted,
            "paused": {
                "fragments": {str(f): reason for f, reason in list(self.fragments.items())[:MOST]},
                "sink_bindings": dict(list(self.sink_bindings.items())[:MOST]),
                "streams": dict(list(self.streams.items())[:MOST]),
            },
            "quiet_ms": dict(list(self.quiet_ms.items())[:MOST]),
            "memories": {str(o): list(memory) for o, memory in list(self.memories.items())[:MOST_MEMORIES]},
            "state": {str(f): size for f, size in largest[:MOST]},
            "flows": {str(c): list(astuple(flow)) for c, flow in waiting[:MOST] if flow.waits_ms},
        }

    @staticmethod
    def of_json(value: Mapping[str, Any]) -> HostReport:
        """The report in a message. One of another version may have fewer fields; malformed ones are left out."""
        try:
            paused = value.get("paused") or {}
            return HostReport(
                tuple(str(p) for p in value.get("problems") or ()),
                None if value.get("halted") is None else str(value["halted"]),
                {FragmentId(int(f)): str(reason) for f, reason in (paused.get("fragments") or {}).items()},
                {str(name): str(reason) for name, reason in (paused.get("sink_bindings") or {}).items()},
                {str(name): str(reason) for name, reason in (paused.get("streams") or {}).items()},
                {str(name): int(ms) for name, ms in (value.get("quiet_ms") or {}).items()},
                {ChannelId(int(c)): ChannelFlow(*map(int, flow)) for c, flow in (value.get("flows") or {}).items()},
                {
                    OperatorId(int(o)): (int(v), int(a), int(b))
                    for o, (v, a, b) in (value.get("memories") or {}).items()
                },
                {FragmentId(int(f)): max(0, int(size)) for f, size in (value.get("state") or {}).items()},
                str(value.get("stands_in") or ""),
                {str(n): str(why) for of in (value.get("not_reached") or {}).values() for n, why in of.items()},
            )
        except (AttributeError, TypeError, ValueError):
            return HostReport(("it says nothing that this coordinator understands; update one of them",))


def state_sizes(store: Store) -> dict[FragmentId, int]:
    """The size of each fragment's state on this host."""
    sizes = {fragment: store.state.size(fragment).bytes for fragment in store.state.fragments()}
    return {fragment: size for fragment, size in sizes.items() if size}


def merged_flows(reports: Mapping[str, HostReport]) -> dict[ChannelId, ChannelFlow]:
    """All channels; one that two hosts know, as its sender and its receiver, is as bad as either says."""
    found: dict[ChannelId, ChannelFlow] = {}
    for report in reports.values():
        for channel, flow in report.flows.items():
            known = found.get(channel)
            found[channel] = flow if known is None else max(known, flow, key=lambda f: (f.stuck_ms, f.waits_ms))
    return found
