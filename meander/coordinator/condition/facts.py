"""Looking at a query: the facts of its condition, from the catalog, the deployment and the reports of hosts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from meander.coordinator.condition.condition import QueryFacts, Stuck
from meander.coordinator.loop.loop import PlacementLoop
from meander.coordinator.query_channels import query_channels
from meander.model.demands import Demand
from meander.model.ids import ChannelId, FragmentId, OperatorId
from meander.model.operators import Sink, Source, describe
from meander.reconfigure.agent.failover import GONE
from meander.run.channels.flight.proof import HOME
from meander.run.installation import OUTSIDE
from meander.run.reporting.backlog import ChannelFlow
from meander.run.reporting.host_report import HostReport, merged_flows

Reports = Mapping[str, HostReport]
NO_REPORTS: Reports = {}


def facts_of(
    loop: PlacementLoop,
    operators: Sequence[OperatorId],
    sink_bindings: Sequence[str],
    reports: Reports,
    flows: Mapping[ChannelId, ChannelFlow] | None = None,
    missed: Sequence[tuple[Demand, float]] = (),
    waits_for: str | None = None,
    *,
    is_stopping: bool = False,
) -> QueryFacts:
    """The facts of a query now; `flows` are those of all reports, for callers that examine many queries."""
    flows = merged_flows(reports) if flows is None else flows
    channels = query_channels(loop.catalog.plan, loop.deployer.deployment, operators)
    found = {c: flows[c] for c in channels if c in flows}
    gone, failed = _paused_fragments(loop, operators, reports)
    placeless = tuple(_unplaced(loop, operators))
    sites = _sites(loop, operators, reports)
    return QueryFacts(
        is_stopping=is_stopping,
        paused=(*_paused_sinks(sink_bindings, reports), *_paused_streams(loop, operators, reports), *failed),
        waiting=(
            *_not_reached(loop, operators, sites),
            *gone,
            *(placeless or _not_deployed(loop, operators)),
            *_cut_off(loop, operators),
        ),
        stuck=tuple(
            Stuck(_where(loop, channel, channels[channel]), flow.pending, flow.stuck_ms)
            for channel, flow in found.items()
            if flow.pending and flow.stuck_ms
        ),
        missed=tuple(missed),
        waits_for=waits_for,
        pending=sum(flow.pending for flow in found.values()),
        quiet_ms=_quiet_ms(loop, operators, found, reports),
        trouble=next((report.halted for report in reports.values() if report.halted), None),
        replicas=tuple(_replicas(sites)),
    )


def _at(site: str) -> str:
    return "" if site == HOME else f" at site {site}"


def _paused_sinks(sink_bindings: Iterable[str], reports: Reports) -> Iterator[str]:
    for name in sink_bindings:
        for site, report in reports.items():
            if name in report.sink_bindings:
                yield f"its sink cannot take results ({name}){_at(site)}: {report.sink_bindings[name]}"


def _streams(loop: PlacementLoop, operators: Iterable[OperatorId]) -> list[str]:
    plan = loop.catalog.plan
    specs = (plan[o].spec for o in operators if o in plan.operators)
    return list(dict.fromkeys(spec.stream for spec in specs if isinstance(spec, Source)))


def _paused_streams(loop: PlacementLoop, operators: Sequence[OperatorId], reports: Reports) -> Iterator[str]:
    for stream in _streams(loop, operators):
        for site, report in reports.items():
            if stream in report.streams:
                yield f"stream {stream} is paused{_at(site)}: {report.streams[stream]}"


def _paused_fragments(
    loop: PlacementLoop, operators: Iterable[OperatorId], reports: Reports
) -> tuple[list[str], list[str]]:
    """Reasons of fragments whose node is gone or that are tried again by themselves, and of those that failed.

    A query that only shares a fragment with failed operators has not failed: it waits until that is set apart.
    """
    here, owner, quarantine = loop.host.routing.paused, loop.deployer.deployment.owner, loop.quarantine
    mine: dict[FragmentId, list[OperatorId]] = {}
    for operator in operators:
        if operator in owner:
            mine.setdefault(owner[operator], []).append(operator)
    gone: list[str] = []
    failed: list[str] = []
    for fragment, inside in mine.items():
        reasons = [("", str(here[fragment]))] if fragment in here else []
        sites = ((site, report) for site, report in reports.items() if site != HOME)
        reasons += [(_at(site), r.fragments[fragment]) for site, r in sites if fragment in r.fragments]
        for where, reason in reasons[:1]:
            pause = loop.host.routing.pauses.get(fragment) or quarantine.pauses.get(fragment)
            struck = set(inside)
            if pause is not None and pause.sets_apart:
                struck &= quarantine.struck(fragment, pause)
            operator = next((o for o in inside if o in struck), inside[0])
            if not struck:
                gone.append(f"operator {operator}{where}: it waits until what failed beside it is set apart: {reason}")
                continue
            waits = reason.startswith(GONE) or (pause is not None and not pause.is_for_good)
            (gone if waits else failed).append(f"operator {operator}{where}: {reason}")
    return gone, failed


def _unplaced(loop: PlacementLoop, operators: Iterable[OperatorId]) -> Iterator[str]:
    plan, nodes = loop.catalog.plan, loop.catalog.placement.nodes
    for operator in operators:
        if operator not in nodes and operator in plan.operators:
            record = plan[operator]
            yield f"operator {operator} ({describe(record.spec)}) has no place: {record.reason or 'no reason known'}"


def _sites(loop: PlacementLoop, operators: Iterable[OperatorId], reports: Reports) -> Reports:
    """The reports of the sites where some of these operators run."""
    owner, of_fragment = loop.deployer.deployment.owner, loop.driver.sites
    named = dict.fromkeys(of_fragment[owner[o]] for o in operators if o in owner and owner[o] in of_fragment)
    return {site: reports[site] for site in named if site in reports}


def _not_reached(loop: PlacementLoop, operators: Sequence[OperatorId], sites: Reports) -> Iterator[str]:
    """Streams and sinks of the query that only machines which are gone reach."""
    plan = loop.catalog.plan
    specs = [plan[o].spec for o in operators if o in plan.operators]
    wanted = {s.stream: "stream" for s in specs if isinstance(s, Source)}
    wanted |= {s.name: "sink" for s in specs if isinstance(s, Sink)}
    for site, report in sites.items():
        for name, reason in report.not_reached.items():
            if name in wanted:
                yield f"{wanted[name]} {name} waits for site {site}, which is gone: {reason}"


def _replicas(sites: Reports) -> Iterator[str]:
    for site, report in sites.items():
        if report.stands_in:
            keeper = "the coordinator" if report.stands_in == HOME else report.stands_in
            yield f"site {site} is gone, and what ran there goes on from its replica at {keeper}"
        if report.lagging:
            yield report.lagging


def _not_deployed(loop: PlacementLoop, operators: Iterable[OperatorId]) -> Iterator[str]:
    owner = loop.deployer.deployment.owner
    for operator in operators:
        fragment = owner.get(operator)
        if fragment is None or not (_runs(loop, fragment) or _moves(loop, operator)):
            yield "it is being deployed"
            return


def _runs(loop: PlacementLoop, fragment: FragmentId) -> bool:
    """Whether a fragment has begun, here or at a site: what no change under way is about to begin has."""
    if loop.driver.runs_here(fragment):
        return fragment in loop.host.routing.fragments
    changes = (each.change for each in loop.deployer.under_way.values())
    return not any(fragment in c.fragments_after and fragment not in c.fragments_before for c in changes)


def _moves(loop: PlacementLoop, operator: OperatorId) -> bool:
    """Whether the operator runs in a fragment that is about to be replaced."""
    return any(
        operator in f.operators
        for each in loop.deployer.under_way.values()
        for f in each.change.fragments_before.values()
    )


def _cut_off(loop: PlacementLoop, operators: Sequence[OperatorId]) -> Iterator[str]:
    deployment, mine = loop.deployer.deployment, set(operators)
    for fragment in dict.fromkeys(deployment.owner[o] for o in operators if o in deployment.owner):
        for _, channel in deployment.channels_of(fragment):
            if channel.is_cut and channel.receiver == fragment and channel.upstream in mine:
                name = loop.catalog.topology.name
                here, there = (name(deployment.fragments[f].node) for f in (channel.sender, channel.receiver))
                yield f"there is no route from {here} to {there} at the moment; tuples are kept"


def _where(loop: PlacementLoop, channel: ChannelId, upstream: OperatorId) -> str:
    """The place where tuples of a channel wait, in words."""
    spec = loop.catalog.plan[upstream].spec
    if channel == OUTSIDE + upstream and isinstance(spec, Sink):
        return f"for sink {spec.name}"
    return f"behind operator {upstream} ({describe(spec)})"


def _quiet_ms(
    loop: PlacementLoop, operators: Sequence[OperatorId], flows: Mapping[ChannelId, ChannelFlow], reports: Reports
) -> int | None:
    """The time for which all sources of a query have given nothing: those of this host by channel, those of sites by
    stream."""
    found = [flow.quiet_ms for channel, flow in flows.items() if _is_source(loop, channel)]
    for site, report in reports.items():
        if site != HOME:
            found += [report.quiet_ms[s] for s in _streams(loop, operators) if s in report.quiet_ms]
    return min(found, default=None)


def _is_source(loop: PlacementLoop, channel: ChannelId) -> bool:
    operator = OperatorId(channel - OUTSIDE)
    record = loop.catalog.plan.operators.get(operator)
    return record is not None and isinstance(record.spec, Source)
