"""Workloads for incremental placement: the published shapes, generated so that they need no file, and one with overlap.

The published sets hold few distinct queries, each many times, so that an addition adds a sink and nothing else; a share
of the distinct ones conflicts, that is, reads from the same two nodes and delivers to the same one. Overlapping queries
have common parts, as when people look at the same sensors with thresholds of their own. Moves are trains driving on.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from lab.workloads.nes_queries import SCHEMA, NesQuery, read_queries, streams_of
from meander.model.events import ChangeEvent, LinkAdded, LinkRemoved, QueryAdded, QueryRemoved
from meander.model.expressions.functions import call
from meander.model.expressions.tree import Column, Named, literal
from meander.model.ids import OperatorId, QueryId
from meander.model.operators import Filter, Map, Operator, Sink, Source, Union
from meander.model.plan import Query, QueryPlan
from meander.model.streams import SinkTarget, Stream
from meander.model.topology.elements import UNLIMITED, Link, Node, NodeKind
from meander.model.topology.graph import Topology
from meander.place.catalog import Catalog, SharingPolicy

MANY_SLOTS = 65_535
"""Slots of every node in the published set-up: capacity never binds."""
CLOUDS, EDGES, SENSORS_PER_EDGE = 64, 64, 10
LINE = (
    'Query::from("{left}").filter(Attribute("p")>=Attribute("o")).map(Attribute("m")=1)'
    '.filter(Attribute("q")<=Attribute("q") * 1).unionWith(Query::from("{right}")'
    '.filter(Attribute("o") * 9<Attribute("m") * 9).filter(Attribute("n")>13).filter(Attribute("q")<=54)'
    '.project(Attribute("m"),Attribute("n"),Attribute("o"),Attribute("p"),Attribute("q"),Attribute("r"),'
    'Attribute("time1"),Attribute("time2"))).sink(NullOutputSinkDescriptor::create(),{sink});'
)
"""A query as in the published sets: two short chains that meet in a union."""


# -------------------------------------------------------------------- many equal queries


def published_shape(count: int, *, distinct: int, conflict: float) -> list[NesQuery]:
    """A set of `count` queries, `distinct` of them different, of which a share conflicts, as the published ones are.

    Nodes are numbered as there: clouds from 1, edges from 65, sensors from 129.
    """
    first_sensor = CLOUDS + EDGES + 1
    apart = distinct - round(distinct * conflict)
    lines = []
    for number in range(distinct):
        sensor = first_sensor + (number + 1) * SENSORS_PER_EDGE if number < apart else first_sensor
        left, right = f"example{sensor}-{number}", f"example{sensor + 1}-{number}"
        lines.append(LINE.format(left=left, right=right, sink=CLOUDS - number % CLOUDS if number < apart else 1))
    return list(read_queries(lines[i % distinct] for i in range(count)))


def train_queries(count: int, *, conflict: float) -> list[NesQuery]:
    """50 distinct queries over pairs of trains; a share of them delivers to cloud 1, the others to their own cloud."""
    lines = []
    for number in range(TRAINS // 2):
        own, group = number % CLOUDS_OF_TRAINS, number // CLOUDS_OF_TRAINS
        train = FIRST_TRAIN + 10 * own + 2 * group
        sink = 1 if own < round(CLOUDS_OF_TRAINS * conflict) else own + 1
        lines.append(LINE.format(left=f"example{train}-1", right=f"example{train + 1}-1", sink=sink))
    return list(read_queries(lines[i % len(lines)] for i in range(count)))


def numbered_catalog(
    topology: Topology, queries: Sequence[NesQuery], *, sharing: SharingPolicy = SharingPolicy.COMPLETE
) -> Catalog:
    """A catalog for a set whose stream `exampleN-k` comes from node N, and whose sinks are numbers of nodes."""
    streams = {
        name: replace(stream, nodes=(_node_of(name),), rate_tps=100.0) for name, stream in streams_of(queries).items()
    }
    sinks = {f"sink-{q.sink_node}": SinkTarget(f"sink-{q.sink_node}", str(q.sink_node)) for q in queries}
    return Catalog(topology, streams, sinks, sharing=sharing, rules=0)


def _node_of(stream: str) -> str:
    found = re.match(r"example(\d+)-", stream)
    assert found is not None
    return found[1]


def three_layers(slots: int = MANY_SLOTS) -> Topology:
    """64 clouds, each linked to each of 64 edges, and ten sensors to an edge; nodes are called by their numbers."""
    kinds = [NodeKind.CLOUD] * CLOUDS + [NodeKind.EDGE] * EDGES + [NodeKind.SENSOR] * (EDGES * SENSORS_PER_EDGE)
    nodes = [Node(str(number), kind, slots) for number, kind in enumerate(kinds, 1)]
    links = [Link(str(c), str(CLOUDS + e)) for c in range(1, CLOUDS + 1) for e in range(1, EDGES + 1)]
    first = CLOUDS + EDGES + 1
    links += [Link(str(CLOUDS + 1 + s // SENSORS_PER_EDGE), str(first + s)) for s in range(EDGES * SENSORS_PER_EDGE)]
    return Topology.of(nodes, links)


# -------------------------------------------------------------------- moving trains

CLOUDS_OF_TRAINS, STATIONS, TRAINS = 10, 10, 100
FIRST_STATION, FIRST_TRAIN = CLOUDS_OF_TRAINS + 1, CLOUDS_OF_TRAINS + STATIONS + 1


def railway(slots: int = MANY_SLOTS) -> Topology:
    """Ten clouds, each linked to each of ten base stations, and ten trains at each base station at first."""
    kinds = [NodeKind.CLOUD] * CLOUDS_OF_TRAINS + [NodeKind.EDGE] * STATIONS + [NodeKind.SENSOR] * TRAINS
    nodes = [Node(str(number), kind, slots, mobile=kind is NodeKind.SENSOR) for number, kind in enumerate(kinds, 1)]
    links = [Link(str(c), str(s)) for c in range(1, FIRST_STATION) for s in range(FIRST_STATION, FIRST_TRAIN)]
    links += [Link(_station(train // STATIONS), str(FIRST_TRAIN + train)) for train in range(TRAINS)]
    return Topology.of(nodes, links)


def moves(count: int, seed: int = 0) -> Iterator[list[ChangeEvent]]:
    """Trains that drive on to the next base station, in random order; every train once before one drives again."""
    rng = np.random.default_rng(seed)
    at = [train // STATIONS for train in range(TRAINS)]
    for number in range(count):
        if number % TRAINS == 0:
            order = rng.permutation(TRAINS)
        train = int(order[number % TRAINS])
        name, here = str(FIRST_TRAIN + train), at[train]
        at[train] = (here + 1) % STATIONS
        yield [
            LinkRemoved(number, name, _station(here)),
            LinkAdded(number, Link(name, _station(at[train]))),
        ]


def _station(number: int) -> str:
    return str(FIRST_STATION + number % STATIONS)


# -------------------------------------------------------------------- queries with common parts


@dataclass(frozen=True, slots=True)
class Sites:
    """Sensors in groups behind an edge each, with all edges below one layer of clouds."""

    sites: int = EDGES
    sensors: int = SENSORS_PER_EDGE
    clouds: int = 8
    slots: tuple[int, int, int] = (MANY_SLOTS, MANY_SLOTS, MANY_SLOTS)
    """Of a sensor, an edge and a cloud."""
    bandwidth_mbps: float = UNLIMITED

    def catalog(self) -> Catalog:
        topology = Topology.of(self._nodes(), self._links())
        streams = {
            f"stream-{s}-{k}": Stream(f"stream-{s}-{k}", SCHEMA, "time1", (f"sensor-{s}-{k}",), rate_tps=100.0)
            for s in range(self.sites)
            for k in range(self.sensors)
        }
        sinks = {f"sink-{c}": SinkTarget(f"sink-{c}", f"cloud-{c}") for c in range(self.clouds)}
        return Catalog(topology, streams, sinks, rules=0)

    def _nodes(self) -> Iterator[Node]:
        sensor, edge, cloud = self.slots
        yield from (Node(f"cloud-{c}", NodeKind.CLOUD, cloud) for c in range(self.clouds))
        for s in range(self.sites):
            yield Node(f"edge-{s}", NodeKind.EDGE, edge)
            yield from (Node(f"sensor-{s}-{k}", NodeKind.SENSOR, sensor) for k in range(self.sensors))

    def _links(self) -> Iterator[Link]:
        width = self.bandwidth_mbps
        for s in range(self.sites):
            yield from (Link(f"edge-{s}", f"cloud-{c}", 10.0, width) for c in range(self.clouds))
            yield from (Link(f"sensor-{s}-{k}", f"edge-{s}", 1.0, width) for k in range(self.sensors))


def overlapping(count: int, shape: Sites, seed: int = 0, *, first: int = 0) -> list[Query]:
    """Queries that share parts: a common filter on a sensor, one of a few maps, then often a threshold of their own.

    Half of them also unite with a second sensor of the site, which ties two shared plans together.
    """
    rng = np.random.default_rng((seed, first))
    return [_overlapping(QueryId(f"q{first + i}"), shape, rng) for i in range(count)]


def _overlapping(name: QueryId, shape: Sites, rng: np.random.Generator) -> Query:
    build = _Plan()
    site = int(rng.integers(shape.sites))
    sensors = [int(k) for k in rng.choice(shape.sensors, size=int(rng.integers(1, 3)), replace=False)]
    tops = []
    for sensor in sorted(sensors):
        top = build.add(Source(f"stream-{site}-{sensor}", SCHEMA, "time1"))
        top = build.add(Filter(call(">", _column("n"), literal(13 + int(rng.integers(2))))), top)
        scaled = call("*", _column("m"), literal(1 + int(rng.integers(3))))
        tops.append(build.add(Map((Named("m", scaled), Named("n", _column("n")), Named("o", _column("o")))), top))
    top = tops[0] if len(tops) == 1 else build.add(Union(), *tops)
    if rng.random() < OWN_THRESHOLD:
        top = build.add(Filter(call("<", _column("o"), literal(int(rng.integers(1_000_000))))), top)
    build.add(Sink(f"sink-{int(rng.integers(shape.clouds))}", ("m", "n", "o")), top)
    return Query(name, build.plan())


OWN_THRESHOLD = 0.7
"""The share of overlapping queries with an operator of their own."""


def tails(count: int, shape: Sites, seed: int = 0, *, first: int = 0, near: bool = False) -> list[Query]:
    """Queries that each add three operators to those that run already: a threshold of their own, a map and a sink.

    With `near`, the sink has the number of the site, otherwise it is any.
    """
    rng = np.random.default_rng((seed, first))
    found = []
    for i in range(count):
        build = _Plan()
        site, sensor, cloud = (int(rng.integers(n)) for n in (shape.sites, shape.sensors, shape.clouds))
        top = build.add(Source(f"stream-{site}-{sensor}", SCHEMA, "time1"))
        top = build.add(Filter(call(">", _column("n"), literal(13))), top)
        top = build.add(Filter(call("<", _column("o"), literal(first + i))), build.add(_KEPT, top))
        build.add(Sink(f"sink-{site if near else cloud}", ("m", "n", "o")), build.add(_DOUBLED, top))
        found.append(Query(QueryId(f"q{first + i}"), build.plan()))
    return found


class _Plan:
    """Collects the operators of a plan."""

    def __init__(self) -> None:
        self.operators: dict[OperatorId, Operator] = {}
        self.inputs: dict[OperatorId, tuple[OperatorId, ...]] = {}

    def add(self, operator: Operator, *below: OperatorId) -> OperatorId:
        own = OperatorId(len(self.operators) + 1)
        self.operators[own], self.inputs[own] = operator, below
        return own

    def plan(self) -> QueryPlan:
        return QueryPlan(self.operators, self.inputs)


def _column(name: str) -> Column:
    return Column(name, SCHEMA.type_of(name))


_KEPT = Map((Named("m", _column("m")), Named("n", _column("n")), Named("o", _column("o"))))
_DOUBLED = Map((Named("m", call("*", _column("m"), literal(2))), Named("n", _column("n")), Named("o", _column("o"))))


def mixed(
    queries: Sequence[Query], running: Iterable[QueryId], count: int, removals: float, seed: int = 0
) -> list[list[ChangeEvent]]:
    """Changes of one event each: a share of removals of random running queries, otherwise the next addition."""
    rng = np.random.default_rng(seed)
    names, fresh = list(running), iter(queries)
    found: list[list[ChangeEvent]] = []
    for removed in rng.random(count) < removals:
        if removed and names:
            at = int(rng.integers(len(names)))
            names[at], names[-1] = names[-1], names[at]
            found.append([QueryRemoved(0, names.pop())])
        else:
            query = next(fresh)
            names.append(query.id)
            found.append([QueryAdded(0, query)])
    return found


# -------------------------------------------------------------------- large independent deltas


@dataclass(frozen=True, slots=True)
class Meshes:
    """Worlds side by side without a link between them: sensors with two edges each, edges in a row, and a cloud.

    With few slots at sensors and edges a whole query does not fit near its sources, and placing it is hard.
    """

    meshes: int
    sensors: int
    slots: int
    """Of a sensor and an edge."""

    def catalog(self, seed: int = 0) -> Catalog:
        rng = np.random.default_rng(seed)
        nodes: list[Node] = []
        links: list[Link] = []
        streams: dict[str, Stream] = {}
        edges = max(2, self.sensors // 2)
        for m in range(self.meshes):
            nodes.append(Node(f"cloud-{m}", NodeKind.CLOUD, MANY_SLOTS))
            for e in range(edges):
                nodes.append(Node(f"edge-{m}-{e}", NodeKind.EDGE, self.slots))
                links.append(Link(f"edge-{m}-{e}", f"cloud-{m}", float(rng.uniform(5, 20))))
                if e:
                    links.append(Link(f"edge-{m}-{e - 1}", f"edge-{m}-{e}", float(rng.uniform(1, 6))))
            for k in range(self.sensors):
                sensor, stream = f"sensor-{m}-{k}", f"stream-{m}-{k}"
                nodes.append(Node(sensor, NodeKind.SENSOR, self.slots))
                links += [Link(sensor, f"edge-{m}-{e % edges}", float(rng.uniform(1, 3))) for e in (k, k + 1)]
                streams[stream] = Stream(stream, SCHEMA, "time1", (sensor,), rate_tps=float(rng.uniform(50, 150)))
        sinks = {f"sink-{m}": SinkTarget(f"sink-{m}", f"cloud-{m}") for m in range(self.meshes)}
        return Catalog(Topology.of(nodes, links), streams, sinks, rules=0)

    def queries(self, number: int) -> list[Query]:
        """One query for each mesh: a filter on every sensor, unions two by two, and a threshold that is its own."""
        return [self._query(m, number) for m in range(self.meshes)]

    def _query(self, mesh: int, number: int) -> Query:
        build = _Plan()
        tops = []
        for k in range(self.sensors):
            source = build.add(Source(f"stream-{mesh}-{k}", SCHEMA, "time1"))
            tops.append(build.add(Filter(call(">", _column("n"), literal(13 + number))), source))
        while len(tops) > 1:
            pairs = [tops[i : i + 2] for i in range(0, len(tops), 2)]
            tops = [build.add(Union(), *pair) if len(pair) > 1 else pair[0] for pair in pairs]
        top = build.add(Filter(call("<", _column("o"), literal(number))), tops[0])
        build.add(Sink(f"sink-{mesh}", ("m", "n", "o")), build.add(_KEPT, top))
        return Query(QueryId(f"mesh-{mesh}-{number}"), build.plan())
