"""Workloads for incremental deployment: devices that move from fog node to fog node under running queries.

Devices compute nothing themselves, so what reads them runs on the fog node they are linked to and has to follow them. A
query without memory maps the readings of its devices. One with memory joins them in pairs: two devices that travel
together, whose join moves along with its window. Results of a query's devices are united on their way to the cloud.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from meander.lang.importers.change_scenarios import import_changes
from meander.lang.sql.script import sql
from meander.local.placement_replay import Setting, batches_of
from meander.model.errors import InputError, unknown
from meander.model.events import ChangeEvent, LinkAdded, LinkRemoved
from meander.model.ids import OperatorId, QueryId
from meander.model.operators import Operator, Sink, Source, Union
from meander.model.plan import Query, QueryPlan
from meander.model.schema import Schema
from meander.model.streams import SinkTarget, Stream
from meander.model.topology.elements import Link, Node, NodeKind
from meander.model.topology.graph import Topology

CLOUD = "cloud"
MANY_SLOTS = 65_535
"""Slots of fog nodes and cloud: what moves is decided by the links alone."""
LATENCY_MS = 1.0
READINGS = Schema.of(ts="timestamp", id="bigint", value="double")
OPTIONS = {"connector": "random", "range.id": "0..50", "range.value": "0..100"}
MAPPED = "SELECT id, value * 2 AS doubled FROM {stream} INTO results"
JOINED = (
    "SELECT l.id AS id, l.value AS before, r.value AS after FROM {left} AS l JOIN {right} AS r ON l.id = r.id "
    "WINDOW TUMBLING(10 s) INTO results"
)
DATA = Path(os.environ.get("MEANDER_DATA", "../shared/data")) / "isqd"


# -------------------------------------------------------------------- generated


@dataclass(frozen=True, slots=True)
class DeviceShape:
    """A generated workload. At every change each query's mobile devices go on to the next fog node."""

    queries: int = 10
    sources: int = 8
    """Devices of a query."""
    mobile: int = 1
    """Devices of a query that move."""
    stateful: bool = False
    period_s: float = 1.0
    changes: int = 120
    links: str = "tree"
    """The links between fog nodes: see `TOPOLOGIES`."""
    intermediates: int = 1
    """Fog nodes between a device and the cloud; devices are linked to the lowest ones."""
    fogs: int = 10
    rate_tps: float = 5.0
    """Of each device."""

    def __post_init__(self) -> None:
        if self.links not in TOPOLOGIES:
            raise unknown("topology", self.links, TOPOLOGIES, plural="topologies")
        if self.stateful and (self.sources % 2 or self.mobile % 2):
            raise InputError(f"devices are joined in pairs, but {self.sources} devices with {self.mobile} mobile ones")
        if not 0 <= self.mobile <= self.sources:
            raise InputError(f"{self.mobile} of {self.sources} devices cannot be mobile")
        if self.fogs < 2 or self.queries < 1 or self.sources < 1 or self.intermediates < 1:
            raise InputError("a workload needs two fog nodes, a query, a device and an intermediate node")

    @property
    def title(self) -> str:
        kind = "stateful" if self.stateful else "stateless"
        place = self.links if self.intermediates == 1 else f"{self.links} with {self.intermediates} intermediates"
        return f"{kind}, {self.sources} sources, {self.mobile} mobile, {place}, every {self.period_s:g} s"

    @property
    def together(self) -> int:
        """Devices that travel together."""
        return 2 if self.stateful else 1


def generated(shape: DeviceShape) -> Setting:
    """Topology, queries and changes of a shape."""
    topology = Topology()
    topology.add_node(Node(CLOUD, NodeKind.CLOUD, MANY_SLOTS))
    for column in range(shape.fogs):
        for row in range(shape.intermediates):
            topology.add_node(Node(_fog(column, row), NodeKind.EDGE, MANY_SLOTS))
    links = [(_fog(c, r), _fog(c, r + 1)) for c in range(shape.fogs) for r in range(shape.intermediates - 1)]
    links += TOPOLOGIES[shape.links](shape.fogs, shape.intermediates - 1)
    at: dict[str, int] = {}
    groups: list[list[str]] = []
    for query in range(shape.queries):
        devices = [f"device-{query * shape.sources + i + 1}" for i in range(shape.sources)]
        groups.append(devices)
        at |= {d: (query + i // shape.together) % shape.fogs for i, d in enumerate(devices)}
    for device, fog in at.items():
        topology.add_node(Node(device, NodeKind.SENSOR, slots=0, mobile=True))
        links.append((device, _fog(fog, 0)))
    for one, other in links:
        topology.add_link(Link(one, other, LATENCY_MS))
    mobile = [d for devices in groups for d in devices[: shape.mobile]]
    return _setting(
        topology, groups, stateful=shape.stateful, events=_moves(shape, mobile, at), rate_tps=shape.rate_tps
    )


def _fog(column: int, row: int) -> str:
    """Fog nodes that devices are linked to are in row 0."""
    return f"fog-{column + 1}" if row == 0 else f"fog-{column + 1}-{row}"


def _tree(fogs: int, top: int) -> list[tuple[str, str]]:
    """Each column of fog nodes has its own link to the cloud."""
    return [(_fog(c, top), CLOUD) for c in range(fogs)]


def _circular(fogs: int, top: int) -> list[tuple[str, str]]:
    """Fog nodes in a ring, of which one is linked to the cloud."""
    around = [(_fog(c, 0), _fog((c + 1) % fogs, 0)) for c in range(fogs if fogs > 2 else 1)]
    return [*around, (_fog(0, top), CLOUD)]


def _full(fogs: int, top: int) -> list[tuple[str, str]]:
    """All pairs of fog nodes are linked, and all of them to the cloud."""
    pairs = [(_fog(a, 0), _fog(b, 0)) for a in range(fogs) for b in range(a + 1, fogs)]
    return [*pairs, *_tree(fogs, top)]


TOPOLOGIES = {"tree": _tree, "circular": _circular, "full": _full}


def _moves(shape: DeviceShape, mobile: Sequence[str], at: dict[str, int]) -> Iterable[ChangeEvent]:
    here = dict(at)
    for change in range(shape.changes):
        at_ms = round(1000 * shape.period_s * change)
        for device in mobile:
            there = (here[device] + 1) % shape.fogs
            yield LinkRemoved(at_ms, device, _fog(here[device], 0))
            yield LinkAdded(at_ms, Link(device, _fog(there, 0), LATENCY_MS))
            here[device] = there


# -------------------------------------------------------------------- published


def published(name: str, period_s: float | None = None, rate_tps: float = 5.0) -> Setting:
    """A scenario at hand (`MEANDER_DATA`), by default with a change a second. Its devices compute nothing either."""
    folder = DATA / name
    if not folder.is_dir():
        raise InputError(f"there is no scenario {name!r} in {DATA}; set MEANDER_DATA to the folder above isqd")
    imported = import_changes(folder)
    topology, streams = imported.contents.topology, imported.contents.streams
    groups = [list(stream.nodes) for stream in streams.values()]
    for device in (d for group in groups for d in group):
        topology.set_capacity(topology.id(device), slots=0)
    found = _setting(topology, groups, stateful="stateful" in name, events=imported.events, rate_tps=rate_tps)
    if period_s is not None:
        moments = enumerate(batches_of(found.events, None))
        found.events = [replace(e, at_ms=round(1000 * period_s * i)) for i, batch in moments for e in batch]
    return found


def scenarios() -> list[str]:
    """The published scenarios at hand."""
    return sorted(p.name for p in DATA.iterdir() if p.is_dir()) if DATA.is_dir() else []


# -------------------------------------------------------------------- queries


def _setting(
    topology: Topology,
    groups: Sequence[Sequence[str]],
    *,
    stateful: bool,
    events: Iterable[ChangeEvent],
    rate_tps: float,
) -> Setting:
    """One query for each group of devices."""
    sinks = {"results": SinkTarget("results", CLOUD, {"connector": "memory"})}
    streams: dict[str, Stream] = {}
    queries: list[Query] = []
    for number, devices in enumerate(groups, start=1):
        parts = {f"left_{number}": devices[::2], f"right_{number}": devices[1::2]}
        if not stateful:
            parts = {f"readings_{number}": devices}
        mine = {n: Stream(n, READINGS, "ts", tuple(d), rate_tps, {**OPTIONS, "seed": n}) for n, d in parts.items()}
        streams |= mine
        query = logical(number, mine, sinks)
        plan = pairwise(query.plan, list(zip(*parts.values(), strict=True))) if stateful else query.plan
        queries.append(Query(query.id, plan))
    return Setting(topology, streams, sinks, queries, list(events))


def logical(number: int, streams: Mapping[str, Stream], sinks: Mapping[str, SinkTarget]) -> Query:
    """The logical query, for any devices: a map of its stream, or a join of its two streams."""
    if f"readings_{number}" in streams:
        text = MAPPED.format(stream=f"readings_{number}")
    else:
        text = JOINED.format(left=f"left_{number}", right=f"right_{number}")
    return sql(text, streams, sinks, QueryId(f"query_{number}")).queries[0]


def pairwise(plan: QueryPlan, pairs: Sequence[Sequence[str]]) -> QueryPlan:
    """The plan once for each pair of nodes, its sources pinned to them in their order; the results are united."""
    (sink,) = plan.sinks
    operators: dict[OperatorId, Operator] = {}
    inputs: dict[OperatorId, tuple[OperatorId, ...]] = {}

    def add(operator: Operator, below: Iterable[OperatorId]) -> OperatorId:
        number = OperatorId(len(operators) + 1)
        operators[number], inputs[number] = operator, tuple(below)
        return number

    ends: list[OperatorId] = []
    for pair in pairs:
        nodes, copies = iter(pair), {}
        for operator in plan.order:
            spec = plan.operators[operator]
            if isinstance(spec, Source):
                copies[operator] = add(replace(spec, node=next(nodes)), ())
            elif not isinstance(spec, Sink):
                copies[operator] = add(spec, (copies[i] for i in plan.inputs[operator]))
        ends.append(copies[plan.inputs[sink][0]])
    add(plan.operators[sink], ends if len(ends) == 1 else [add(Union(), ends)])
    return QueryPlan(operators, inputs)
