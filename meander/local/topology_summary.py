"""A topology in a few figures, for `meander topology`: its contents, its connections, its extent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from meander.lang.topology.writer import one_per_link
from meander.model.ids import NodeId
from meander.model.topology.elements import NodeKind
from meander.model.topology.graph import Topology

MEASURED_DIAMETER = 20_000
SWEEPS = 4


@dataclass(frozen=True, slots=True)
class Summary:
    """Counts, degrees (links per node), latencies of links, and the longest of some cheapest paths."""

    nodes: int
    kinds: dict[str, int]
    mobile: int
    slots: int
    links: int
    one_way: int
    components: int
    largest_component: int
    isolated: int
    degree: tuple[int, float, int]
    latency_ms: tuple[float, float, float] | None
    diameter_ms: float | None

    def as_json(self) -> dict[str, Any]:
        least, mean, most = self.degree
        return {
            "nodes": self.nodes,
            "kinds": self.kinds,
            "mobile": self.mobile,
            "slots": self.slots,
            "links": self.links,
            "one_way_links": self.one_way,
            "components": self.components,
            "largest_component": self.largest_component,
            "isolated_nodes": self.isolated,
            "degree": {"lowest": least, "mean": round(mean, 2), "highest": most},
            "latency_ms": self.latency_ms and dict(zip(("lowest", "mean", "highest"), self.latency_ms, strict=True)),
            "diameter_ms_at_least": self.diameter_ms,
        }

    def rows(self) -> list[tuple[str, str]]:
        """Its content, as labels and texts."""
        kinds = ", ".join(f"{count:,} {kind}{'' if count == 1 else 's'}" for kind, count in self.kinds.items() if count)
        least, mean, most = self.degree
        rows = [
            ("nodes", f"{self.nodes:,} ({kinds}; {self.mobile:,} mobile)"),
            ("slots", f"{self.slots:,}"),
            ("links", f"{self.links:,}" + (f" ({self.one_way:,} one-way)" if self.one_way else "")),
            ("links per node", f"{least} to {most}, mean {mean:.1f}"),
            ("components", self._components()),
        ]
        if self.latency_ms:
            low, average, high = self.latency_ms
            rows.append(("link latency", f"{low:g} to {high:g} ms, mean {average:g} ms"))
        if self.diameter_ms is not None:
            rows.append(("diameter", f"at least {self.diameter_ms:g} ms"))
        return rows

    def _components(self) -> str:
        if self.components == 1:
            return "1, everything is connected"
        alone = "node" if self.isolated == 1 else "nodes"
        return (
            f"{self.components:,}, the largest with {self.largest_component:,} nodes; {self.isolated:,} {alone} alone"
        )


def summarise(topology: Topology, *, diameter: bool = True) -> Summary:
    """The figures of a topology; one-way links connect like others here. Its diameter takes paths, and so compiled
    code."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    n, a = topology.nodes, topology.arcs
    alive = np.flatnonzero(n.alive[: n.count])
    arcs, both = one_per_link(topology)
    ends = coo_array((np.ones(len(arcs), dtype=np.int8), (a.tail[arcs], a.tip[arcs])), shape=(n.count, n.count))
    labels = connected_components(ends, directed=False)[1][alive] if n.count else alive
    sizes = np.unique(labels, return_counts=True)[1]
    degree = np.bincount(np.concatenate((a.tail[arcs], a.tip[arcs])), minlength=n.count)[alive]
    latency = a.latency_ms[arcs].astype(np.float64)
    kinds = np.bincount(n.kind[alive], minlength=len(NodeKind))
    return Summary(
        nodes=len(alive),
        kinds={kind.name.lower(): int(kinds[kind]) for kind in sorted(NodeKind, reverse=True)},
        mobile=int(np.count_nonzero(n.mobile[alive])),
        slots=int(n.slots[alive].sum(dtype=np.int64)),
        links=len(arcs),
        one_way=int(np.count_nonzero(~both)),
        components=len(sizes),
        largest_component=int(sizes.max(initial=0)),
        isolated=int(np.count_nonzero(degree == 0)),
        degree=(int(degree.min(initial=degree[0])), float(degree.mean()), int(degree.max()))
        if len(degree)
        else (0, 0.0, 0),
        latency_ms=tuple(round(float(f(latency)), 4) for f in (np.min, np.mean, np.max)) if len(latency) else None,  # type: ignore[arg-type]
        diameter_ms=_diameter_ms(topology, alive.tolist())
        if diameter and 0 < len(alive) <= MEASURED_DIAMETER
        else None,
    )


def _diameter_ms(topology: Topology, alive: list[int]) -> float:
    """The largest latency seen when going from one node to the farthest, from there to the farthest, and so on."""
    start, largest = alive[0], 0.0
    for _ in range(SWEEPS):
        latencies = topology.adjacency.latencies_from(NodeId(start))
        latencies[~np.isfinite(latencies)] = -1.0
        start = int(latencies.argmax())
        largest = max(largest, float(latencies[start]))
    return round(largest, 4)
