"""What must be true of everything that runs: the deployment is the catalog's, and the host's is the deployment.

`step_faults` hold at any moment; `deployment_faults` and `host_faults` when nothing is under way. Routes are compared
hop by hop. What the catalog does not explain is a leak, wherever it is: in the routing table, the channels, the state,
the notes or the records of what ran.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from meander.deploy.fragments import Channel
from meander.model.ids import ChannelId, FragmentId, OperatorId
from meander.model.operators import STATEFUL, Sink, Source
from meander.reconfigure.agent.failover import GONE
from meander.run.installation import OUTSIDE
from meander.run.step.backup_bases import BASES, base_of
from meander.run.store.records.deployment import (
    ChannelRecord,
    FragmentRecord,
    GoneNodeRecord,
    NumbersRecord,
    SerialisedFragmentRecord,
    SlotCountRecord,
    SlotRecord,
)
from meander.run.store.records.progress import DeliveryRecord, LostStateRecord
from tests.coordinator.loop.catalog_checks import is_live
from tests.coordinator.loop.world import BY_HAND, LoopWorld

AT_REST = (
    SerialisedFragmentRecord,
    FragmentRecord,
    ChannelRecord,
    GoneNodeRecord,
    SlotRecord,
    SlotCountRecord,
    NumbersRecord,
    LostStateRecord,
    DeliveryRecord,
)
"""Records that may be there while nothing is under way."""


def step_faults(world: LoopWorld) -> list[str]:
    """At any moment: every fragment that runs finds its channels, and runs in the version that the deployer knows."""
    routing, known = world.host.routing, set(world.host.store.exchange.channels())
    found = [
        f"fragment {f} reads channel {port}, which is not there"
        for f, installed in routing.fragments.items()
        for port in installed.ports
        if port not in known
    ]
    found += [
        f"fragment {f} feeds channel {wire.channel}, which is not there"
        for f, installed in routing.fragments.items()
        for wires in installed.outputs
        for wire in wires
        if wire.channel not in known
    ]
    running, here = world.loop.deployer.running(), {f: i.version for f, i in routing.fragments.items()}
    fresh = {f for r in world.loop.deployer.under_way.values() for f in r.change.fragments_after}
    if {f: v for f, v in running.items() if f not in fresh} != {f: v for f, v in here.items() if f not in fresh}:
        found.append(f"the deployer runs {running}, the host {here}")
    return found


def deployment_faults(world: LoopWorld) -> list[str]:
    return [*_settled(world), *_fragments(world), *_channels(world)]


def host_faults(world: LoopWorld) -> list[str]:
    return [*_routing(world), *_store_channels(world), *_records(world), *_state(world)]


def _settled(world: LoopWorld) -> Iterator[str]:
    loop = world.loop
    if loop.deployer.has_open_changes:
        yield f"under way {sorted(loop.deployer.under_way)}, waiting {sorted(loop.deployer.waiting)}"
    if loop.pending:
        yield f"{len(loop.pending)} batches are not in effect: open {[a.open for a in loop.pending]}"
    if loop.driver.under_way:
        yield f"carried out still: {loop.driver.under_way}"
    nodes = world.catalog.placement.nodes
    for operator in loop.deployer._loose:
        if operator in nodes or operator not in world.catalog.plan.operators:
            yield f"operator {operator} is looked after as if it had no place"


# ---------------------------------------------------------------- the deployment is the catalog's


def _fragments(world: LoopWorld) -> Iterator[str]:
    plan, nodes, name = world.catalog.plan, world.catalog.placement.nodes, world.catalog.topology.name
    deployment = world.loop.deployer.deployment
    owner = {o: f.id for f in deployment.fragments.values() for o in f.operators}
    if owner != deployment.owner:
        yield f"owners are {deployment.owner}, but fragments hold {owner}"
    if sum(len(f.operators) for f in deployment.fragments.values()) != len(owner):
        yield f"an operator runs twice: {[f.operators for f in deployment.fragments.values()]}"
    yield from (
        f"operator {o} runs in fragment {f}, but is not in the plan"
        for o, f in owner.items()
        if o not in plan.operators
    )
    for operator in plan.operators:
        should, fragment = _should_run(world, operator), owner.get(operator)
        if should and fragment is None:
            yield f"operator {operator} is placed on {name(nodes[operator])}, but runs nowhere"
        elif fragment is not None and operator in nodes and deployment.fragments[fragment].node != nodes[operator]:
            here = name(deployment.fragments[fragment].node)
            yield f"operator {operator} is placed on {name(nodes[operator])}, but runs on {here}"
        elif fragment is None and operator in nodes and all(i in owner for i in plan[operator].inputs):
            yield f"operator {operator} has all its inputs, but runs nowhere"
    for fragment_ in deployment.fragments.values():
        inside = set(fragment_.operators)
        needed = {
            o for o in inside & plan.operators.keys() if any(r in owner and r not in inside for r in plan[o].readers)
        }
        if not needed <= set(fragment_.outputs) <= inside:  # more may be emitted than somebody reads now
            yield f"fragment {fragment_.id} has outputs {fragment_.outputs}, but others read {sorted(needed)}"


def _should_run(world: LoopWorld, operator: OperatorId) -> bool:
    """Whether it and all that it reads have a place: those that lost theirs go on where they are."""
    record, nodes = world.catalog.plan[operator], world.catalog.placement.nodes
    return operator in nodes and all(_should_run(world, i) for i in record.inputs)


def _channels(world: LoopWorld) -> Iterator[str]:
    plan, deployment = world.catalog.plan, world.loop.deployer.deployment
    owner, wanted = deployment.owner, set[tuple[OperatorId, FragmentId]]()
    for operator, fragment in owner.items():
        if operator in plan.operators:
            inputs = [i for i in plan[operator].inputs if i in owner and owner[i] != fragment]
            wanted.update((i, fragment) for i in inputs)
            missing = [i for i in plan[operator].inputs if i not in owner]
            if missing:
                yield f"operator {operator} runs, but what it reads does not: {missing}"
    for key in wanted - deployment.channels.keys():
        yield f"there is no channel from operator {key[0]} to fragment {key[1]}"
    for key in deployment.channels.keys() - wanted:
        yield f"nobody needs channel {deployment.channels[key].id} from operator {key[0]} to fragment {key[1]}"
    if len({c.id for c in deployment.channels.values()}) != len(deployment.channels):
        yield f"channels share a number: {sorted(c.id for c in deployment.channels.values())}"
    for key in deployment.channels.keys() & wanted:
        yield from _channel(world, deployment.channels[key])


def _channel(world: LoopWorld, channel: Channel) -> Iterator[str]:
    """Ends and hops of one channel against the catalog's routes of the edges that it stands for."""
    deployment, topology, plan = world.loop.deployer.deployment, world.catalog.topology, world.catalog.plan
    what = f"channel {channel.id} from operator {channel.upstream} to fragment {channel.receiver}"
    if deployment.owner[channel.upstream] != channel.sender:
        yield f"{what} says fragment {channel.sender} sends, but operator {channel.upstream} is elsewhere"
        return
    ends = deployment.fragments[channel.sender].node, deployment.fragments[channel.receiver].node
    path = channel.path
    readers = [o for o in deployment.fragments[channel.receiver].operators if o in plan.operators]
    routes = [r for o in readers if (r := world.catalog.placement.routes.get((channel.upstream, o))) is not None]
    fitting = [r for r in routes if (r.nodes[0], r.nodes[-1]) == ends]
    if ends[0] == ends[1]:
        if path is not None or channel.is_cut:
            yield f"{what} stays on one node, but has path {path} and is cut: {channel.is_cut}"
    elif path is None:
        if not channel.is_cut:
            yield f"{what} has no path, but is not cut"
        if fitting or (all(map(topology.is_alive, ends)) and topology.adjacency.search(*ends) is not None):
            yield f"{what} is cut, but there is a path from {topology.name(ends[0])} to {topology.name(ends[1])}"
    elif channel.is_cut:
        yield f"{what} is cut, but has path {path.nodes}"
    elif (path.nodes[0], path.nodes[-1]) != ends:
        yield f"{what} leads {path.nodes}, but its fragments are on {ends}"
    elif fitting and path not in fitting:
        shown = [[topology.name(n) for n in r.nodes] for r in (path, *fitting)]
        yield f"{what} leads {shown[0]}, but the catalog's route is {shown[1:]}"
    elif not is_live(path, topology):
        yield f"{what} leads {[topology.name(n) for n in path.nodes]} over links that are gone"


# ---------------------------------------------------------------- the host runs the deployment


def _routing(world: LoopWorld) -> Iterator[str]:
    deployment, routing, topology = world.loop.deployer.deployment, world.host.routing, world.catalog.topology
    wanted = {f.id: f.version for f in deployment.fragments.values()}
    here = {f: installed.version for f, installed in routing.fragments.items()}
    if here != wanted:
        yield f"the host runs {here}, but deployed are {wanted}"
        return
    if routing.awaiting or routing.drained:
        yield f"at markers {sorted(routing.awaiting)}, stopped {routing.drained}"
    for number, installed in routing.fragments.items():
        fragment = deployment.fragments[number]
        specs = {o: world.catalog.plan[o].spec for o in fragment.operators if o in world.catalog.plan.operators}
        sources = [OUTSIDE + o for o, spec in specs.items() if isinstance(spec, Source)]
        read = [c.id for _, c in deployment.channels_of(number) if c.receiver == number]
        if sorted(installed.ports) != sorted([*sources, *read]):
            yield f"fragment {number} reads {sorted(installed.ports)}, but should {sorted([*sources, *read])}"
        for operator, wires in zip(installed.bound.outputs, installed.outputs, strict=True):
            fed = {c.id for (u, _), c in deployment.channels.items() if u == operator}
            if isinstance(specs.get(operator), Sink):
                fed.add(ChannelId(OUTSIDE + operator))
            if {w.channel for w in wires} != fed or len(wires) != len(fed):
                yield f"operator {operator} feeds {sorted(w.channel for w in wires)}, but should {sorted(fed)}"
        paused, is_alive = routing.paused.get(number), topology.is_alive(fragment.node)
        if is_alive and paused not in (None, BY_HAND):
            yield f"fragment {number} is paused although its node is there: {paused}"
        if not is_alive and paused is None:
            yield f"fragment {number} runs on {topology.name(fragment.node)}, which is gone"
        if paused and paused.startswith(GONE) and topology.name(fragment.node) not in paused:
            yield f"fragment {number} of {topology.name(fragment.node)} is paused for another reason: {paused}"


def _store_channels(world: LoopWorld) -> Iterator[str]:
    deployment, exchange, host = world.loop.deployer.deployment, world.host.store.exchange, world.host
    specs = {o: world.catalog.plan[o].spec for o in deployment.owner if o in world.catalog.plan.operators}
    ingest = {ChannelId(OUTSIDE + o): s for o, s in specs.items() if isinstance(s, Source)}
    results = {ChannelId(OUTSIDE + o) for o, s in specs.items() if isinstance(s, Sink)}
    inner = {c.id: c for c in deployment.channels.values()}
    known, wanted = set(exchange.channels()), {*inner, *ingest, *results}
    if known != wanted:
        yield f"channels too many {sorted(known - wanted)}, missing {sorted(wanted - known)}"
    fed = {c: key for key, channels in host.feeding.channels.items() for c in channels}
    if fed != {c: (s.stream, s.node) for c, s in ingest.items()}:
        yield f"fed are {fed}, but sources are {ingest}"
    for number in known & inner.keys():
        channel, spec = inner[number], exchange.spec(number)
        if (spec.sender, spec.receiver) != (channel.sender, channel.receiver):
            yield f"channel {number} leads from {spec.sender} to {spec.receiver}, but should {channel}"
        if exchange.is_cut(number) != channel.is_cut:
            yield f"channel {number} is cut in the store: {exchange.is_cut(number)}, but should be: {channel.is_cut}"
        delay = world.loop.paths.delay_ms(channel)
        if spec.delay_ms != delay:
            yield f"channel {number} takes {spec.delay_ms} ms, but its path {delay} ms"


def _records(world: LoopWorld) -> Iterator[str]:
    deployment, topology, store = world.loop.deployer.deployment, world.catalog.topology, world.host.store
    fragments = {f: record.fragment for f, record in store.records(FragmentRecord).items()}
    if fragments != deployment.fragments:
        yield f"the store remembers {fragments}, but there are {deployment.fragments}"
    channels = {c: record.channel for c, record in store.records(ChannelRecord).items()}
    known = {c.id: c for c in deployment.channels.values()}
    if channels != known:
        yield f"the store remembers {channels}, but there are {known}"
    for node in store.records(GoneNodeRecord):
        if topology.is_alive(node):
            yield f"the store says node {node} is gone, but it is there"
    for fragment in store.records(SlotRecord):
        if fragment not in deployment.fragments:
            yield f"the store knows the slot of fragment {fragment}, which does not run"
    for fragment in store.records(LostStateRecord):
        lost = deployment.fragments.get(fragment)
        if lost is None or topology.is_alive(lost.node):
            yield f"the store says the state of fragment {fragment} is lost, but that is {lost}"
    for found in store.views.records.by_kind.values():
        for record in found.values():
            if not isinstance(record, AT_REST):
                yield f"the store keeps a record that nobody needs: {record}"


def _state(world: LoopWorld) -> Iterator[str]:
    deployment, plan, state = world.loop.deployer.deployment, world.catalog.plan, world.host.store.state
    remembering = {f.id for f in deployment.fragments.values() if any(_remembers(plan, o) for o in f.operators)}
    allowed = remembering | ({base_of(f) for f in remembering} if not world.setting.replicas else set())
    for fragment in state.fragments():
        if fragment not in allowed:
            what = "a copy of fragment" if fragment >= BASES else "fragment"
            yield f"{what} {fragment % BASES} has state, but does not run"
    running = {(f.id, f.version) for f in deployment.fragments.values()}
    if not world.restarts and set(plan.former) != running:  # a plan that outlives its process keeps some more
        yield f"remembered are {sorted(plan.former)}, but {sorted(running)} run"


def _remembers(plan: Any, operator: OperatorId) -> bool:
    return operator in plan.operators and isinstance(plan[operator].spec, STATEFUL)
