"""The plan of a run on this machine: queries placed, cut into fragments, and ready to be installed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from meander.deploy.fragments import Deployment, Placed, deploy
from meander.lang.topology.reader import TopologyFile
from meander.model.errors import InputError, unknown
from meander.model.events import QueryAdded
from meander.model.ids import ChannelId, OperatorId
from meander.model.operators import Sink
from meander.model.plan import Query
from meander.model.streams import SinkTarget
from meander.place.catalog import Catalog
from meander.place.engine import Engine
from meander.place.mechanisms import MECHANISMS, mechanism
from meander.place.nova.queries.joined import NAMES, add_joined
from meander.place.nova.queries.settings import MECHANISM, NovaQuerySettings
from meander.run.connectors import check_connectors
from meander.run.connectors.base import SinkBinding, Surroundings
from meander.run.installation import Installation, installation


@dataclass(frozen=True)
class LocalPlan:
    """A placed and cut set of queries, ready to be installed."""

    catalog: Catalog
    deployment: Deployment
    installation: Installation
    sink_bindings: tuple[SinkBinding, ...]
    late: tuple[SinkBinding, ...] = ()
    """Sink bindings for late tuples, where a query asks for them."""


def plan_queries(
    world: TopologyFile,
    queries: Sequence[Query],
    mechanism_name: str,
    *,
    slots: int = 1,
    emulate: bool = False,
    late: Path | None = None,
) -> LocalPlan:
    """Places the queries; raises when one of them cannot be placed, with the reasons.

    Late tuples go where the options of a query's sinks say, else into the folder `late` if there is one.
    """
    catalog = Catalog(world.topology, dict(world.streams), dict(world.sinks))
    joined = mechanism_name in NAMES
    ways = {q.id: _way(q, mechanism_name) for q in queries}
    engine = Engine(catalog, mechanism("bottom_up" if joined else mechanism_name))
    for query in queries:
        if ways[query.id] in NAMES:
            add_joined(catalog, engine.log, query, ways[query.id])
    report = engine.run([QueryAdded(0, q) for q in queries if ways[q.id] not in NAMES])
    engine.close()
    if report.unplaced:
        operator, reason = next(iter(report.unplaced.items()))
        raise InputError(f"{len(report.unplaced)} operators could not be placed; operator {operator}: {reason}")
    deployment = deploy(Placed(catalog.plan, catalog.placement, catalog.topology))
    delays: dict[ChannelId, int] = {}
    if emulate:
        delays = {c.id: round(c.path.latency_ms) for c in deployment.channels.values() if c.path is not None}
    bindings = {fragment: i % slots for i, fragment in enumerate(deployment.fragments)}
    late_sinks = late_targets(catalog, late)
    installed = installation(catalog.plan, deployment, bindings, delays, late_sinks)
    sink_bindings = [
        SinkBinding(name, _target(catalog, sink), installed.results[sink])
        for name, running in catalog.plan.queries.items()
        for sink in running.sinks
    ]
    query_of = {sink: name for name, running in catalog.plan.queries.items() for sink in running.sinks}
    late_bindings = [
        SinkBinding(
            query_of[o.sink], replace(late_sinks[o.sink], name=f"{late_sinks[o.sink].name}-{o.label}"), o.channel
        )
        for o in installed.late
    ]
    return LocalPlan(catalog, deployment, installed, tuple(sink_bindings), tuple(late_bindings))


def _way(query: Query, usual: str) -> str:
    """The mechanism that a query names, or the usual one; raises for one that is not known."""
    NovaQuerySettings().with_options(query.options)
    known = [*(m.name for m in MECHANISMS), *NAMES]
    name = dict(query.options).get(MECHANISM, usual)
    for each in (usual, name):
        if each not in known:
            raise unknown("mechanism", each, known)
    if name not in (*NAMES, usual):
        raise InputError(
            f"query {query.id!r} names mechanism {name}, but the others of a run have {usual}; name one for all with "
            "--mechanism, or run a service"
        )
    return name


def _target(catalog: Catalog, sink: OperatorId) -> SinkTarget:
    spec = catalog.plan[sink].spec
    assert isinstance(spec, Sink)
    return catalog.sinks[spec.name]


def late_targets(catalog: Catalog, folder: Path | None = None) -> dict[OperatorId, SinkTarget]:
    """The sinks of late tuples, by sink of their query. A query with several sinks sends them once to each place."""
    found: dict[OperatorId, SinkTarget] = {}
    for running in catalog.plan.queries.values():
        places: set[str] = set()
        for sink in running.sinks:
            target = _target(catalog, sink)
            name = target.options.get("late")
            if name is not None and name not in catalog.sinks:
                raise InputError(f"sink {target.name!r}: option 'late': {unknown('sink', name, catalog.sinks).message}")
            if name is not None and name not in places:
                places.add(name)
                found[sink] = catalog.sinks[name]
        if not places and folder is not None:
            options = {"path": str(folder.absolute() / "{query}-{sink}.jsonl")}
            found[running.sinks[0]] = SinkTarget("late", _target(catalog, running.sinks[0]).node, options)
    return found


def check_plan(plan: LocalPlan, base: Path) -> None:
    """Raises InputError for sources and sinks that could not be opened, before Spark starts."""
    streams = {s for s, _ in plan.installation.ingest}
    sinks = [o.target for o in (*plan.sink_bindings, *plan.late)]
    check_connectors((plan.catalog.streams[s] for s in streams), sinks, Surroundings(base, base))
