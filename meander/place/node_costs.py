"""Energy and price of a query: what the nodes that run its operators draw and cost, by the topology.

A node draws its power, and costs its price, while it runs something. That is shared by the operators that run there;
sources and sinks are where they must be and count nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from meander.model.ids import NodeId, OperatorId
from meander.model.operators import Sink, Source
from meander.place.catalog import Catalog


@dataclass(frozen=True, slots=True)
class NodeCosts:
    """The share of one query."""

    power_w: float
    price_per_h: float


def node_costs(catalog: Catalog, nodes: Mapping[OperatorId, NodeId]) -> NodeCosts:
    """The costs of operators on these nodes, beside what runs there already."""
    plan, columns = catalog.plan, catalog.topology.nodes

    def counts(operator: OperatorId) -> bool:
        return operator in plan.operators and not isinstance(plan[operator].spec, Source | Sink)

    own = Counter(node for operator, node in nodes.items() if counts(operator))
    power = price = 0.0
    for node, mine in own.items():
        others = sum(counts(o) for o in catalog.on_node.get(node, ()) if o not in nodes)
        share = mine / (mine + others)
        power += float(columns.power_w[node]) * share
        price += float(columns.price_per_h[node]) * share
    return NodeCosts(power, price)
