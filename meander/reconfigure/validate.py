"""Checks that a host has what was deployed there, and nothing else: fragments, channels, state.

The same check serves a host near and far: it compares two plain values, what should be there and the host's inventory.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from meander.deploy.fragments import Channel, Deployment, DeploymentChange, Fragment
from meander.model.global_plan import GlobalPlan
from meander.model.ids import ChannelId, FragmentId
from meander.model.operators import Sink, Source
from meander.reconfigure.agent.in_flight import REBUILT
from meander.reconfigure.state.precopy import AHEAD
from meander.run.installation import OUTSIDE
from meander.run.reporting.inventory import FragmentFacts, Inventory
from meander.run.step.backup_bases import BASES

ASIDE = 1 << 42
"""Channels from here on are for a moment, or for late tuples."""


@dataclass(frozen=True)
class Expected:
    """The fragments, channels and state that should be on one host."""

    fragments: Mapping[FragmentId, Fragment]
    channels: Mapping[ChannelId, Channel]
    """Those from or to these fragments."""
    outside: frozenset[ChannelId] = frozenset()
    """Channels of its sources and sinks, and results that are still being delivered."""
    busy: frozenset[FragmentId] = frozenset()
    """Fragments of changes under way: they are not looked at."""
    open: frozenset[ChannelId] = frozenset()
    """Channels of changes under way."""
    ports: Mapping[FragmentId, frozenset[ChannelId]] = field(default_factory=dict)
    outputs: Mapping[FragmentId, frozenset[ChannelId]] = field(default_factory=dict)


def expected(
    plan: GlobalPlan,
    deployment: Deployment,
    here: Collection[FragmentId],
    under_way: Iterable[DeploymentChange] = (),
    delivering: Iterable[ChannelId] = (),
) -> Expected:
    """The expectation of a host that runs these fragments of a deployment."""
    changes = list(under_way)
    leaving = frozenset(f for o, f in deployment.owner.items() if o not in plan.operators)  # their change waits
    busy = leaving | frozenset(f for c in changes for f in c.fragments)
    both = [*(c.channels_before for c in changes), *(c.channels_after for c in changes)]
    fragments = {f: deployment.fragments[f] for f in here if f not in busy}
    channels = {c.id: c for f in fragments for _, c in deployment.channels_of(f)}
    ports: dict[FragmentId, set[ChannelId]] = {f: set() for f in fragments}
    outputs: dict[FragmentId, set[ChannelId]] = {f: set() for f in fragments}
    for channel in channels.values():
        ports.get(channel.receiver, set()).add(channel.id)
        outputs.get(channel.sender, set()).add(channel.id)
    outside = set(delivering)
    for fragment in fragments.values():
        for operator in fragment.operators:
            spec = plan[operator].spec
            side = ports if isinstance(spec, Source) else outputs if isinstance(spec, Sink) else None
            if side is not None:
                outside.add(ChannelId(OUTSIDE + operator))
                side[fragment.id].add(ChannelId(OUTSIDE + operator))
    outside |= {ChannelId(OUTSIDE + o) for c in changes for o in c.operators}
    outside |= {ChannelId(OUTSIDE + o) for f in leaving for o in deployment.fragments[f].operators}
    open_ = {c.id for side in both for c in side.values()}
    open_ |= {c.id for f in leaving for _, c in deployment.channels_of(f)}
    return Expected(
        fragments,
        channels,
        frozenset(outside),
        busy,
        frozenset(open_),
        {f: frozenset(found) for f, found in ports.items()},
        {f: frozenset(found) for f, found in outputs.items()},
    )


def validate(wanted: Expected, found: Inventory) -> list[str]:
    """Every difference, in sentences; empty when the host has exactly what it should."""
    return [*_fragment_faults(wanted, found), *_channel_faults(wanted, found), *_state_faults(wanted, found)]


def _fragment_faults(wanted: Expected, found: Inventory) -> Iterator[str]:
    for number, fragment in wanted.fragments.items():
        facts = found.fragments.get(number)
        if facts is None:
            yield f"fragment {number} should run and does not"
        elif facts.version != fragment.version:
            yield f"fragment {number} runs as version {facts.version}, but should as {fragment.version}"
        else:
            yield from _wiring_faults(wanted, number, facts)
    for number in found.fragments:
        if number not in wanted.fragments and number not in wanted.busy:
            yield f"fragment {number} runs, but was not deployed"


def _wiring_faults(wanted: Expected, number: FragmentId, facts: FragmentFacts) -> Iterator[str]:
    sides = (("reads", wanted.ports, facts.ports), ("feeds", wanted.outputs, facts.outputs))
    for verb, of, have in sides:
        should, does = of[number] - wanted.open, frozenset(c for c in have if c < ASIDE) - wanted.open
        if should != does:
            yield f"fragment {number} {verb} channels {sorted(does)}, but should {sorted(should)}"


def _channel_faults(wanted: Expected, found: Inventory) -> Iterator[str]:
    for number, channel in wanted.channels.items():
        if number in wanted.open:
            continue
        facts = found.channels.get(number)
        if facts is None:
            yield f"channel {number} from fragment {channel.sender} to {channel.receiver} is not there"
        elif facts.receiver != channel.receiver:
            yield f"channel {number} is for fragment {facts.receiver}, but should be for {channel.receiver}"
        elif facts.is_cut != channel.is_cut:
            yield f"channel {number} {_state(facts.is_cut)}, but should not"
    for number in sorted({c for side in (wanted.ports, wanted.outputs) for cs in side.values() for c in cs}):
        if number >= OUTSIDE and number not in found.channels and number not in wanted.open:
            yield f"channel {number} of a source or sink is not there"
    for number in found.channels:
        if number < OUTSIDE:
            if number not in wanted.channels and number not in wanted.open:
                yield f"channel {number} is there, but belongs to nothing that was deployed"
        elif number < ASIDE and number not in wanted.outside:
            yield f"channel {number} is there, but its source or sink is not"


def _state_faults(wanted: Expected, found: Inventory) -> Iterator[str]:
    for number in found.state:
        if number >= AHEAD:  # sent ahead of a change that may never be: the agent drops it
            continue
        if number >= BASES:
            owner = FragmentId(number - BASES)
            if owner not in wanted.fragments and owner not in wanted.busy:
                yield f"a base of fragment {owner} is kept, which is not deployed"
        elif number >= REBUILT:
            if not wanted.busy:
                yield f"state {number} waits for a change, but none is under way"
        elif number not in wanted.fragments and number not in wanted.busy:
            yield f"state of fragment {number} is kept, which is not deployed"


def _state(is_cut: bool) -> str:
    return "is cut" if is_cut else "flows"
