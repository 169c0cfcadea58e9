"""The read model: all visible facts, as plain JSON values. The decision core keeps it up to date; all requests read it.

Values are never changed, only replaced, so a reader needs no lock and sees one moment. The cost of a change depends on
its size: nodes, links and operators have entries of their own.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from meander.coordinator.ledger.absent_node_links import AwayLinks
from meander.coordinator.ledger.removed_nodes import merged
from meander.coordinator.loop.loop import PlacementLoop
from meander.coordinator.read_model.measuring import Measured
from meander.model.ids import FragmentId, NodeId, OperatorId, QueryId
from meander.model.operators import describe, kind_of
from meander.model.topology.elements import Link, NodeKind

Json = dict[str, Any]
Pair = tuple[NodeId, NodeId]
"""Two nodes that may be linked, the smaller number first."""


@dataclass(frozen=True, slots=True)
class QueryShape:
    """The operators that serve a query, and their edges."""

    operators: tuple[OperatorId, ...]
    edges: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class PlacementViews:
    """One moment of the read model."""

    version: int = 0
    """Of the topology."""
    nodes: Mapping[str, Json] = field(default_factory=dict)
    links: Mapping[Pair, tuple[Json, ...]] = field(default_factory=dict)
    operators: Mapping[OperatorId, Json] = field(default_factory=dict)
    queries: Mapping[str, Json] = field(default_factory=dict)
    shapes: Mapping[str, QueryShape] = field(default_factory=dict)
    deployment: Json = field(default_factory=lambda: {"fragments": [], "channels": []})
    health: Json = field(default_factory=lambda: {"status": "starting", "problems": []})
    positions: Mapping[str, Json] = field(default_factory=dict)
    measured: Measured | None = None

    def topology(self) -> Json:
        links = [link for pair in self.links.values() for link in pair]
        return {"version": self.version, "nodes": list(self.nodes.values()), "links": links}

    def dag(self, query: str) -> Json:
        shape = self.shapes[query]
        operators = [self.operators[o] for o in shape.operators if o in self.operators]
        return {"operators": operators, "edges": [list(edge) for edge in shape.edges]}


class ReadModel:
    """Written by one thread; `views` may be read by any."""

    def __init__(self, loop: PlacementLoop, away: AwayLinks) -> None:
        self.loop = loop
        self.views = PlacementViews()
        self.why: dict[OperatorId, str] = {}
        self._away = away
        """The links of nodes that are away."""
        self._users: dict[OperatorId, set[QueryId]] = {}

    def show(self, **changed: Any) -> None:
        """Replaces parts of the views."""
        self.views = replace(self.views, **changed)

    # ---------------------------------------------------------------- topology

    def show_topology(self, nodes: Iterable[NodeId], pairs: Iterable[Pair]) -> Json | None:
        """Brings entries up to date; returns the differences, or None."""
        shown, linked = dict(self.views.nodes), dict(self.views.links)
        changed: list[Json] = []
        removed: list[str] = []
        added: list[Json] = []
        cut: list[Json] = []
        forgotten = self._away.forgotten_nodes()
        dropped: list[str] = []
        for node in nodes:
            entry = self._node(node)
            before = shown.get(entry["name"])
            if not entry["alive"] and entry["name"] in forgotten:
                if shown.pop(entry["name"], None) is not None:
                    dropped.append(entry["name"])
                continue
            if entry != before:
                shown[entry["name"]] = entry
                changed.append(entry)
                if before is not None and before["alive"] and not entry["alive"]:
                    removed.append(entry["name"])
        for pair in pairs:
            now, then = self._links(pair), linked.get(pair, ())
            if now != then:
                cut += [{"a": link["a"], "b": link["b"]} for link in then]
                added += now
                linked.pop(pair, None)
                if now:
                    linked[pair] = now
        if not (changed or added or cut or dropped):
            return None
        version = self.loop.catalog.topology.version
        self.show(version=version, nodes=shown, links=linked)
        return {
            "version": version,
            "nodes_changed": changed,
            "nodes_removed": removed,
            "nodes_forgotten": dropped,
            "links_added": added,
            "links_removed": cut,
        }

    def show_whole_topology(self) -> None:
        topology = self.loop.catalog.topology
        ends = zip(topology.arcs.tail, topology.arcs.tip, topology.arcs.alive, strict=True)
        pairs = {pair_of(NodeId(int(a)), NodeId(int(b))) for a, b, alive in ends if alive}
        self.show_topology((NodeId(n) for n in range(topology.nodes.count)), pairs)

    def _node(self, number: NodeId) -> Json:
        catalog = self.loop.catalog
        node = catalog.topology.node(number)
        entry: Json = {
            "name": node.name,
            "kind": NodeKind(node.kind).name.lower(),
            "capacity": node.slots,
            "used": int(catalog.ledger.slots[number]),
            "alive": catalog.topology.is_alive(number),
            "mobile": node.mobile,
        }
        if math.isfinite(node.capacity_tps):
            entry["capacity_tps"] = node.capacity_tps
        costs = {"power_w": node.power_w, "price_per_h": node.price_per_h}
        entry |= {key: value for key, value in costs.items() if value}
        if node.lon is not None and node.lat is not None:
            entry |= {"x": node.lon, "y": node.lat}
        return entry if entry["alive"] else entry | {"comes_back_with": self._kept_links(node.name)}

    def _kept_links(self, name: str) -> list[Json]:
        """The links that a removed node had."""
        arcs = {(k.source, k.target): k for k in self._away.arcs_of(name)}
        return [_shown(link) for link in merged(arcs)]

    def _links(self, pair: Pair) -> tuple[Json, ...]:
        """The link between two nodes: one entry, or two when its directions differ."""
        forth, back = self._arc(*pair), self._arc(*pair[::-1])
        if forth and back and {**back, "a": forth["a"], "b": forth["b"]} == forth:
            return (forth,)
        return tuple({**arc, "directed": True} for arc in (forth, back) if arc)

    def _arc(self, tail: NodeId, tip: NodeId) -> Json | None:
        topology = self.loop.catalog.topology
        arc = topology.adjacency.between(tail, tip) if topology.is_alive(tail) and topology.is_alive(tip) else None
        if arc is None:
            return None
        latency, bandwidth = float(topology.arcs.latency_ms[arc]), float(topology.arcs.bandwidth_mbps[arc])
        entry: Json = {"a": topology.name(tail), "b": topology.name(tip), "latency_ms": _rounded(latency)}
        return entry if math.isinf(bandwidth) else entry | {"bandwidth_mbps": _rounded(bandwidth)}

    # ---------------------------------------------------------------- operators and queries

    def queries_of(self, operator: OperatorId) -> list[str]:
        """The queries that an operator serves."""
        return sorted(self._users.get(operator, ()))

    def show_query(self, query: QueryId) -> None:
        """A query that came: its operators and edges."""
        plan = self.loop.catalog.plan
        serving = tuple(sorted(plan.serving(query)))
        edges = tuple((int(i), int(o)) for o in serving for i in dict.fromkeys(plan[o].inputs))
        for operator in serving:
            self._users.setdefault(operator, set()).add(query)
        self.show(shapes={**self.views.shapes, query: QueryShape(serving, edges)})
        self.show_operators(serving)

    def drop_query(self, query: QueryId) -> None:
        """Drops a query, with the operators that no other query uses."""
        shapes = dict(self.views.shapes)
        shape = shapes.pop(query, None)
        queries = {q: entry for q, entry in self.views.queries.items() if q != query}
        self.show(shapes=shapes, queries=queries)
        for operator in shape.operators if shape else ():
            users = self._users.get(operator, set())
            users.discard(query)
            if not users:
                self._users.pop(operator, None)
        if shape:
            self.show_operators(shape.operators)

    def show_operators(self, operators: Iterable[OperatorId]) -> None:
        """Brings entries of operators up to date; those without a query go."""
        shown = dict(self.views.operators)
        for operator in operators:
            record = self.loop.catalog.plan.operators.get(operator)
            if operator not in self._users:
                shown.pop(operator, None)
                self.why.pop(operator, None)
            elif record is not None:
                shown[operator] = self._operator(operator)
        self.show(operators=shown)

    def _operator(self, operator: OperatorId) -> Json:
        loop = self.loop
        record, node = loop.catalog.plan[operator], loop.catalog.placement.nodes.get(operator)
        fragment = loop.deployer.deployment.owner.get(operator)
        installed = None if fragment is None else loop.host.routing.fragments.get(fragment)
        return {
            "id": int(operator),
            "kind": kind_of(record.spec),
            "label": describe(record.spec),
            "node": None if node is None else loop.catalog.topology.name(node),
            "fragment": None if fragment is None else int(fragment),
            "slot": None if installed is None else installed.slot,
            "shared": len(self._users.get(operator, ())) > 1,
            "pinned": record.is_held,
            "queries": self.queries_of(operator),
            "why": record.reason if node is None and record.reason else self.why.get(operator, ""),
        }

    # ---------------------------------------------------------------- what runs

    def show_deployment(self, measured: Measured | None) -> None:
        """Fragments and channels, with their measures."""
        loop = self.loop
        topology, routing, deployment = loop.catalog.topology, loop.host.routing, loop.deployer.deployment
        pending: dict[FragmentId, int] = {}
        counters = measured.counters if measured else {}
        sizes = measured.state_bytes if measured else {}
        for number, installed in routing.fragments.items():
            pending[number] = sum(counters[p].pending_tuples for p in installed.ports if p in counters)
        fragments = []
        for fragment in deployment.fragments.values():
            running = routing.fragments.get(fragment.id)
            fragments.append(
                {
                    "id": int(fragment.id),
                    "version": fragment.version,
                    "node": topology.name(fragment.node),
                    "slot": None if running is None else running.slot,
                    "operators": [int(o) for o in fragment.operators],
                    "queries": sorted({q for o in fragment.operators for q in self._users.get(o, ())}),
                    "pending": pending.get(fragment.id, 0),
                    "state_bytes": sizes.get(fragment.id, 0),
                    "paused": routing.paused.get(fragment.id),
                }
            )
        channels = [
            {
                "id": int(c.id),
                "from": int(c.sender),
                "to": int(c.receiver),
                "path": [] if c.path is None else [topology.name(n) for n in c.path.nodes],
                "cut": c.is_cut,
                "waiting": counters[c.id].pending_tuples if c.id in counters else 0,
            }
            for c in deployment.channels.values()
        ]
        self.show(deployment={"fragments": fragments, "channels": channels})

    def link_rates(self, measured: Measured) -> list[Json]:
        """Tuples per second on links, by the paths of channels."""
        topology = self.loop.catalog.topology
        rates: dict[Pair, float] = {}
        for channel in self.loop.deployer.deployment.channels.values():
            tps = measured.channel_tps.get(channel.id, 0.0)
            if channel.path is not None and tps > 0:
                for a, b in zip(channel.path.nodes, channel.path.nodes[1:], strict=False):
                    pair = pair_of(a, b)
                    rates[pair] = rates.get(pair, 0.0) + tps
        return [{"a": topology.name(a), "b": topology.name(b), "tps": round(tps, 2)} for (a, b), tps in rates.items()]


def _shown(link: Link) -> Json:
    entry: Json = {"a": link.source, "b": link.target, "latency_ms": _rounded(link.latency_ms)}
    entry |= {} if math.isinf(link.bandwidth_mbps) else {"bandwidth_mbps": _rounded(link.bandwidth_mbps)}
    return entry | ({"directed": True} if link.directed else {})


def pair_of(a: NodeId, b: NodeId) -> Pair:
    return (a, b) if a < b else (b, a)


def _rounded(value: float) -> float:
    """Single precision has seven digits; more would be noise."""
    return float(f"{value:.7g}")
