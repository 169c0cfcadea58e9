"""The operators of a running query that some mechanism placed and that Nova takes over, for as long as both run.

Parts begin beside the join that runs, with nothing: until that join remembers nothing from before, it answers, and
tuples that arrive at the parts are marked, so that they make no pairs. Then marks end and the join goes, at one place
of each source's tuples. Parts therefore read the very sources that the join reads, and every fragment on the way to it
takes part in the change with which they begin: gates, which let nothing through, see to that.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from meander.model.errors import InputError
from meander.model.expressions.tree import Column, Literal, Named
from meander.model.global_plan import OperatorState
from meander.model.ids import NodeId, OperatorId, QueryId
from meander.model.operators import STATEFUL, Filter, Map, Operator, Sink, Source
from meander.model.schema import Schema
from meander.model.signature import Signature
from meander.place.catalog import Catalog
from meander.place.nova.queries.cut_operators import CutOperators
from meander.place.nova.queries.shape import PAIRING
from meander.place.nova.queries.split import predicate

Gate = tuple[OperatorId, NodeId]
"""An operator on the way to the join, and where it runs."""


@dataclass(frozen=True, slots=True)
class Legacy:
    """The part of a running query up to where its parts will come in."""

    join: OperatorId
    end: OperatorId
    """The last filter or projection right behind the join."""
    gates: tuple[Gate, ...]
    sources: Mapping[Signature, OperatorId]

    @staticmethod
    def check(catalog: Catalog, query: QueryId) -> None:
        """Raises for a query that cannot be taken over now."""
        for operator in catalog.plan.serving(query):
            if catalog.plan[operator].state is not OperatorState.PLACED:
                raise InputError(
                    f"query {query!r}: operator {operator} waits for a place; switch when all of the query runs"
                )
        Legacy.of(catalog, query)

    @staticmethod
    def of(catalog: Catalog, query: QueryId) -> Legacy:
        """That of a running query; raises when it cannot be taken over while it runs."""
        plan, placed = catalog.plan, catalog.placement.nodes
        serving = plan.serving(query)
        (join,) = (o for o in serving if isinstance(plan[o].spec, PAIRING))
        below = _below(catalog, join)
        memory = [o for o in serving if isinstance(plan[o].spec, STATEFUL) and o != join]
        if memory:
            raise InputError(
                f"query {query!r} has an operator with memory behind its join ({memory[0]}), which cannot go over to "
                "Nova while it runs; stop the query and submit it with --mechanism nova"
            )
        end, own = join, set(serving)
        readers = [r for r in plan[end].readers if r in own]
        while len(readers) == 1 and isinstance(plan[readers[0]].spec, Filter | Map):
            end = readers[0]
            readers = [r for r in plan[end].readers if r in own]
        stays = [o for o in below if o in placed and plan[o].state is OperatorState.PLACED]
        gates = tuple((o, placed[o]) for o in stays if o == join or _crosses(catalog, o))
        sources = {plan[o].signature: o for o in below if isinstance(plan[o].spec, Source)}
        return Legacy(join, end, gates, sources)

    def as_json(self) -> dict[str, Any]:
        return {"join": self.join, "end": self.end, "gates": [list(gate) for gate in self.gates]}

    @staticmethod
    def of_json(values: Mapping[str, Any]) -> Legacy:
        gates = tuple((OperatorId(o), NodeId(n)) for o, n in values["gates"])
        return Legacy(OperatorId(values["join"]), OperatorId(values["end"]), gates, {})


def _below(catalog: Catalog, join: OperatorId) -> list[OperatorId]:
    """The join and all that feeds it."""
    found, stack = {join: None}, [join]
    while stack:
        for upstream in catalog.plan[stack.pop()].inputs:
            if upstream not in found:
                found[upstream] = None
                stack.append(upstream)
    return list(found)


def _crosses(catalog: Catalog, operator: OperatorId) -> bool:
    """Whether it reads from another node, so that its fragment begins with it."""
    placed = catalog.placement.nodes
    return any(placed.get(i) != placed[operator] for i in catalog.plan[operator].inputs)


def legacy_tops(
    operators: CutOperators, legacy: Legacy, wanted: Schema, sink_node: NodeId
) -> tuple[list[OperatorId], list[OperatorId]]:
    """The results of what still answers, in the form that is wanted, and its gates, which are new with every change."""
    plan, gates = operators.catalog.plan, []
    given = plan[legacy.end].schema
    columns = tuple(Named(to.name, Column(of.name, of.type)) for to, of in zip(wanted, given, strict=True))
    found = [operators.operator(Map(columns), (legacy.end,), sink_node)]
    for operator, node in legacy.gates:
        shut, empty = _gate(plan[operator].schema, wanted)
        gates.append(operators.add(shut, (operator,), node))
        found.append(operators.operator(empty, (gates[-1],), node))
    return found, gates


def _gate(below: Schema, above: Schema) -> tuple[Operator, Operator]:
    """Operators through which nothing comes, in the form of another schema."""
    nothing = tuple(Named(f.name, Literal(None, f.type)) for f in above)
    return Filter(predicate(below, ((0, 0),))), Map(nothing)


def sinks_of(catalog: Catalog, query: QueryId) -> list[OperatorId]:
    """The sinks of a running query."""
    return [s for s in catalog.plan.query(query).sinks if isinstance(catalog.plan[s].spec, Sink)]
