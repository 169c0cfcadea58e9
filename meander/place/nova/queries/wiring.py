"""A join that Nova has cut into parts, as operators of the global query plan.

    source ─ split ──► arrival ─┐
                                join ─ projection ─┐
    source ─ split ──► arrival ─┘                  merge ──► merge ─ rest of the query ─ sink
    at the sources      at each node that joins               at the sink

A split keeps the tuples that one node needs of one source: they travel there once, for all readers there. A merge on
each node holds its parts together, so they are one fragment. All of these are ordinary operators, pinned to their
nodes: deployment, markers, migration and recovery know nothing of parts.

When the cut changes, a part that goes on under the same ranges keeps its operator, and moves with its state. A part
whose ranges are not wanted any more *retires*: what arrives from then on is marked, and it makes no pairs of two marked
tuples. Those are made by the parts that take its place, which begin with nothing. So a pair is made by the part that
was in charge when the earlier of its tuples arrived, whatever happened since; the retired part ends when no earlier
tuple is left.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from meander.model.errors import InputError
from meander.model.expressions.functions import call
from meander.model.expressions.tree import FALSE, TRUE, Column, Expression, Named
from meander.model.global_plan import OperatorState, PlanOperator, RunningQuery
from meander.model.ids import NodeId, OperatorId
from meander.model.operators import Filter, Map, Operator, Source, Union, output_schema
from meander.model.schema import BOOLEAN, Schema, beside, fresh
from meander.model.signature import Signature, signature_of
from meander.place.catalog import Catalog
from meander.place.changelog import ChangeLog
from meander.place.nova.queries.shape import JoinShape, Side
from meander.place.nova.queries.split import EVERYTHING, Slots, predicate, together
from meander.place.rates import row_bytes
from meander.place.sharing import estimate

LEFT, RIGHT = 0, 1


@dataclass(frozen=True, slots=True)
class JoinPart:
    """A rectangle of one pair of sources at a node. Sources are numbered through, the left side's first."""

    left: int
    right: int
    left_slots: Slots
    right_slots: Slots
    node: NodeId

    def slots(self, side: int) -> Slots:
        return self.right_slots if side else self.left_slots

    def source(self, side: int) -> int:
        return self.right if side else self.left


@dataclass(slots=True)
class Running:
    """A part that runs."""

    part: JoinPart
    operator: OperatorId | None = None
    """Its join."""
    retired: bool = False


Key = tuple[Operator, tuple[OperatorId, ...], NodeId]
"""The identity of an operator without memory: two with the same key are one."""


class Wiring:
    """One query's operators. It edits the plan and writes down operators to be placed; the engine does the rest."""

    def __init__(
        self, catalog: Catalog, log: ChangeLog, shape: JoinShape, shared: dict[Signature, OperatorId] | None = None
    ) -> None:
        """`shared` are sources that other queries may read as well; by default all of the catalog's."""
        self.catalog, self.log, self.shape = catalog, log, shape
        self.shared = catalog.running if shared is None else shared
        self.sink_node = catalog.topology.known_id(shape.sink_node)
        self.producers = [(side, node) for side, each in enumerate((shape.left, shape.right)) for node in each.nodes]
        """The side and the node of each source, by its number: the left side's first, then those that came later."""
        self.parts: list[Running] = []
        self._made: dict[Key, OperatorId] = {}
        self._known: dict[Key, OperatorId] = {}
        """The operators that existed before the change that is being made."""
        self._own: dict[OperatorId, None] = {}
        """All operators between the sources and the rest of the query."""
        self._merge: OperatorId | None = None
        self._rest: dict[OperatorId, OperatorId] = {}
        """Operators of the query's plan behind the merge, and their counterparts here."""
        self._flag = fresh(("marked",), (*shape.left.schema.names, *shape.right.schema.names))[0]
        self._fresh: list[OperatorId] = []
        self.visited: dict[OperatorId, None] = {}
        """The operators of the present cut, in the order in which building it comes across them."""
        self._given: list[OperatorId] = []
        """The numbers of operators that are made again as they were, the next one last."""

    def side(self, number: int) -> Side:
        """The side that a source is on."""
        return self.shape.right if number else self.shape.left

    @property
    def sources(self) -> list[tuple[str, str]]:
        """Stream and node of each source."""
        return [(self.side(side).source.stream, node) for side, node in self.producers]

    @property
    def active(self) -> list[JoinPart]:
        return [r.part for r in self.parts if not r.retired]

    @property
    def retired(self) -> list[Running]:
        return [r for r in self.parts if r.retired]

    # ---------------------------------------------------------------- changing

    def start(self, parts: Iterable[JoinPart]) -> None:
        """Adds the query, cut like this."""
        query = self.shape.query
        if query.id in self.catalog.plan.queries:
            raise InputError(f"query {query.id!r} is running already; remove it first or choose another name")
        self.parts = [Running(p) for p in joined_up(parts)]
        self._write(f"query {query.id} added")
        sinks = tuple(self._rest[s] for s in query.plan.sinks)
        self.catalog.plan.add_query(RunningQuery(query, sinks))

    def restore(self, record: Mapping[str, Any]) -> None:
        """Adds the query to the plan as it was recorded. Where its operators run is known to the caller."""
        self.producers = [(int(side), str(node)) for side, node in record["producers"]]
        for a, b, c, d, e, f, node, retired in record["parts"]:
            self.parts.append(Running(JoinPart(a, b, (c, d), (e, f), NodeId(node)), retired=bool(retired)))
        self._given = [OperatorId(o) for o in reversed(record["operators"])]
        self._build()
        self._know()
        sinks = tuple(self._rest[s] for s in self.shape.query.plan.sinks)
        self.catalog.plan.add_query(RunningQuery(self.shape.query, sinks))

    def change(self, parts: Iterable[JoinPart], cause: str, spent: Sequence[Running] = ()) -> bool:
        """Cuts it like this from now on; says whether anything changes. `spent` parts end if they have retired."""
        wanted = {_ranges(p): p for p in joined_up(parts)}
        before = {_ranges(r.part): r for r in self.parts if not r.retired}
        ended = [r for r in spent if r.retired]
        if {k: r.part for k, r in before.items()} == wanted and not ended and not self._is_displaced():
            return False
        for ranges, running in before.items():
            if ranges in wanted:
                running.part = wanted[ranges]
            else:
                running.retired = True
        self.parts = [r for r in self.parts if not r.retired or all(r is not s for s in spent)]
        self.parts += [Running(p) for ranges, p in wanted.items() if ranges not in before]
        self._write(cause)
        return True

    def _is_displaced(self) -> bool:
        """Whether a part's join is pinned elsewhere."""
        plan = self.catalog.plan
        return any(r.operator is not None and plan[r.operator].pin != r.part.node for r in self.parts)

    def move(self, running: Running, node: NodeId) -> None:
        """A part goes to another node with the next change: its own has left."""
        running.part = replace(running.part, node=node)

    # ---------------------------------------------------------------- operators

    def _write(self, cause: str) -> None:
        """Changes the plan to match the parts, and writes down operators to be placed or removed."""
        before, self._known, self._made, self._fresh = self._own, self._made, {}, []
        sources = [o for o in self.visited if isinstance(self.catalog.plan[o].spec, Source)]
        moved = self._build()
        self._know()
        gone = [o for o in before if o not in self._own]
        self._remove(gone)
        plan = self.catalog.plan
        unread = [o for o in sources if not plan[o].users and plan[o].state is not OperatorState.TO_BE_REMOVED]
        self._remove(unread, gone)
        self.log.write([*self._fresh, *moved, *gone, *unread], (), cause)

    def _know(self) -> None:
        """Takes note of all operators of the present cut."""
        assert self._merge is not None
        joins = [r.operator for r in self.parts if r.operator is not None]
        self._own = dict.fromkeys([*self._made.values(), *joins, self._merge])
        self.catalog.plan.bundles[self.shape.query.id] = dict.fromkeys([*self._own, *self._rest.values()])

    def _build(self) -> list[OperatorId]:
        """Adds missing operators, connects those that stay; returns those that have to move."""
        self.visited = {}
        moved: list[OperatorId] = []
        ends = self._ends_of_sources({p.part.source(side) for p in self.parts for side in (LEFT, RIGHT)})
        needed: dict[tuple[int, int, NodeId], list[Slots]] = {}
        for running in self.parts:
            for side in (LEFT, RIGHT):
                key = (side, running.part.source(side), running.part.node)
                needed.setdefault(key, []).append(running.part.slots(side))
        splits: dict[tuple[int, int, NodeId], tuple[OperatorId, tuple[Slots, ...]]] = {}
        for (side, source, node), ranges in needed.items():
            covered = together(ranges)
            place = self.catalog.plan[ends[source]].pin
            assert place is not None
            splits[side, source, node] = self._kept(ends[source], covered, EVERYTHING, place), covered
        outputs: dict[NodeId, list[OperatorId]] = {}
        for running in self.parts:
            node = running.part.node
            inputs = tuple(self._arrival(running, side, splits) for side in (LEFT, RIGHT))
            moved += self._join(running, (inputs[0], inputs[1]))
            assert running.operator is not None
            top = running.operator
            for spec in (self._without_flags(), *self.shape.behind):
                top = self._operator(spec, (top,), node)
            outputs.setdefault(node, []).append(top)
        tops = [self._operator(Union(), tuple(o), n) if len(o) > 1 else o[0] for n, o in outputs.items()]
        self._finish(tuple(tops))
        return moved

    def _ends_of_sources(self, wanted: set[int]) -> dict[int, OperatorId]:
        """For each source what its tuples are after the query's filters and projections, beside the source."""
        found: dict[int, OperatorId] = {}
        for number, (place, name) in enumerate(self.producers):
            if number in wanted:
                side = self.side(place)
                top = self._source(side, name)
                for spec in side.chain:
                    top = self._operator(spec, (top,), self.catalog.topology.known_id(name))
                found[number] = top
        return found

    def _source(self, side: Side, node: str) -> OperatorId:
        """The source's operator, which other queries may read as well."""
        spec = replace(side.source, node=node)
        signature = signature_of(spec, (), ())
        running = self.shared.get(signature)
        if running is None or running not in self.catalog.plan.operators:
            running = self._add(spec, (), self.catalog.topology.known_id(node), signature)
            self.shared[signature] = running
        elif self.catalog.plan[running].state is OperatorState.TO_BE_REMOVED:
            there = running in self.catalog.placement.nodes
            self.catalog.plan[running].become(OperatorState.PLACED if there else OperatorState.TO_BE_PLACED)
        self._visit(running)
        return running

    def _kept(self, below: OperatorId, ranges: tuple[Slots, ...], given: tuple[Slots, ...], node: NodeId) -> OperatorId:
        """Only these positions of an operator's output, which has the given ones."""
        if ranges == given:
            return below
        schema = self.catalog.plan[below].schema
        return self._operator(Filter(predicate(schema, ranges)), (below,), node)

    def _arrival(
        self,
        running: Running,
        side: int,
        splits: dict[tuple[int, int, NodeId], tuple[OperatorId, tuple[Slots, ...]]],
    ) -> OperatorId:
        """The input of one side of a part: its own positions, marked if it has retired."""
        part = running.part
        split, covered = splits[side, part.source(side), part.node]
        own = self._kept(split, together([part.slots(side)]), covered, part.node)
        schema = self.catalog.plan[own].schema
        columns = (*_same(schema), Named(self._flag, TRUE if running.retired else FALSE))
        return self._operator(Map(columns), (own,), part.node)

    def _join(self, running: Running, inputs: tuple[OperatorId, OperatorId]) -> list[OperatorId]:
        """The part's join, made or connected anew; returned if it has to move."""
        plan, node = self.catalog.plan, running.part.node
        if running.operator is None:
            running.operator = self._add(self._marked_join(), inputs, node)
            return []
        self._visit(running.operator)
        self._connect(running.operator, inputs)
        record = plan[running.operator]
        if record.pin == node:
            return []
        record.pin = node
        plan.readers_changed()
        if record.state is OperatorState.PLACED:
            record.become(OperatorState.TO_BE_REPLACED)
        return [record.id]

    def _marked_join(self) -> Operator:
        """The query's join over tuples with a mark: not two marked ones."""
        both = self._flagged()
        marks: list[Expression] = [Column(both.names[len(self.shape.left.schema)], BOOLEAN)]
        marks.append(Column(both.names[-1], BOOLEAN))
        condition: Expression = call("not", call("and", *marks))
        if self.shape.join.condition is not None:
            condition = call("and", self.shape.join.condition, condition)
        return replace(self.shape.join, condition=condition)

    def _flagged(self) -> Schema:
        sides = (self.shape.left.schema, self.shape.right.schema)
        left, right = (output_schema(Map((*_same(s), Named(self._flag, FALSE))), (s,)) for s in sides)
        return beside(left, right)

    def _without_flags(self) -> Map:
        names = beside(self.shape.left.schema, self.shape.right.schema)
        return Map(_same(names))

    def _finish(self, tops: tuple[OperatorId, ...]) -> None:
        """The merge beside the sink, which is new with every change, and the rest of the query behind it.

        Because the merge is new, all that changes belongs to one reconfiguration and takes effect at one place of each
        source's tuples.
        """
        plan = self.shape.query.plan
        self._merge = self._add(Union(), tops, self.sink_node)
        for own in self.shape.rest:
            inputs = tuple(self._merge if i == self.shape.end else self._rest[i] for i in plan.inputs[own])
            if own in self._rest:
                self._visit(self._rest[own])
                self._connect(self._rest[own], inputs)
            else:
                self._rest[own] = self._add(plan.operators[own], inputs, self.sink_node)

    def _operator(self, spec: Operator, inputs: tuple[OperatorId, ...], node: NodeId) -> OperatorId:
        """An operator without memory: the one that is there already, or a new one."""
        key = (spec, inputs, node)
        found = self._made.get(key) or self._known.get(key)
        if found is None:
            found = self._add(spec, inputs, node)
        self._made[key] = found
        self._visit(found)
        return found

    def _visit(self, operator: OperatorId) -> None:
        if operator not in self.visited:
            self.visited[operator] = None
            if self._given:
                assert self._given.pop() == operator, f"operator {operator} is not where it was"

    def _add(
        self, spec: Operator, inputs: tuple[OperatorId, ...], node: NodeId, signature: Signature | None = None
    ) -> OperatorId:
        plan = self.catalog.plan
        schema = output_schema(spec, tuple(plan[i].schema for i in inputs))
        number = self._given[-1] if self._given else plan.fresh_id()
        record = PlanOperator(number, spec, schema, signature or Signature(f"part {number}"), inputs, pin=node, slots=0)
        record.row_bytes = row_bytes(schema)
        estimate(self.catalog, record)
        plan.add_operator(record)
        self._fresh.append(number)
        self._visit(number)
        return number

    def _connect(self, operator: OperatorId, inputs: tuple[OperatorId, ...]) -> None:
        """Lets an operator read others from now on; they are on its node."""
        plan, record = self.catalog.plan, self.catalog.plan[operator]
        for upstream in dict.fromkeys(record.inputs):
            if upstream not in inputs:
                del plan[upstream].readers[operator]
                plan[upstream].users -= 1
        for upstream in dict.fromkeys(inputs):
            if upstream not in record.inputs:
                plan[upstream].readers[operator] = None
                plan[upstream].users += 1
        record.inputs = inputs
        plan.readers_changed()

    def _remove(self, operators: Sequence[OperatorId], before: Sequence[OperatorId] = ()) -> None:
        """Marks operators without readers for removal, and takes them out of the counts; others may have gone
        before."""
        plan, gone = self.catalog.plan, {*operators, *before}
        for operator in operators:
            record = plan[operator]
            record.become(OperatorState.TO_BE_REMOVED)
            for upstream in dict.fromkeys(record.inputs):
                plan[upstream].users -= 1
            assert not set(record.readers) - gone, f"operator {operator} is still read"


def record_of(wiring: Wiring) -> dict[str, Any]:
    """The present cut as JSON values: enough to make the same operators again, with the same numbers."""
    parts = [
        [p.left, p.right, *p.left_slots, *p.right_slots, int(p.node), r.retired] for r in wiring.parts for p in [r.part]
    ]
    operators = [int(o) for o in wiring.visited]
    return {"producers": [list(p) for p in wiring.producers], "parts": parts, "operators": operators}


def joined_up(parts: Iterable[JoinPart]) -> list[JoinPart]:
    """The same cells in fewer parts: rectangles of one node that share a whole side are one."""
    found = list(parts)
    for side in (LEFT, RIGHT):
        rows: dict[tuple[int, int, Slots, NodeId], list[JoinPart]] = {}
        for p in found:
            rows.setdefault((p.left, p.right, p.slots(1 - side), p.node), []).append(p)
        found = []
        for members in rows.values():
            for slots in together(p.slots(side) for p in members):
                first = members[0]
                found.append(replace(first, right_slots=slots) if side else replace(first, left_slots=slots))
    return found


def _ranges(part: JoinPart) -> tuple[int, int, Slots, Slots]:
    return part.left, part.right, part.left_slots, part.right_slots


def _same(schema: Schema) -> tuple[Named, ...]:
    return tuple(Named(f.name, Column(f.name, f.type)) for f in schema)
