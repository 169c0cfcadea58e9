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

A query that leaves Nova for another mechanism has one part that is the whole join and runs anywhere; all others retire.
Of a query that comes to Nova, the join that runs (`Legacy`) answers until its memory holds nothing from before; until
then its parts are *warming*: their tuples are marked.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from meander.model.errors import InputError
from meander.model.expressions.functions import call
from meander.model.expressions.tree import FALSE, TRUE, Column, Expression, Literal, Named
from meander.model.global_plan import OperatorState, RunningQuery
from meander.model.ids import NodeId, OperatorId
from meander.model.operators import Filter, Map, Operator, Sink, Source, Union, output_schema
from meander.model.schema import BOOLEAN, Schema, beside, fresh
from meander.model.signature import Signature
from meander.place.catalog import Catalog
from meander.place.changelog import ChangeLog
from meander.place.nova.queries.cut_operators import CutOperators
from meander.place.nova.queries.shape import JoinShape, Side
from meander.place.nova.queries.split import EVERYTHING, SLOTS, Slots, predicate, together
from meander.place.nova.queries.takeover import Legacy, gate, sinks_of

LEFT, RIGHT = 0, 1
ANYWHERE = NodeId(-1)
WARMING = Literal(None, BOOLEAN)
"""The mark of tuples that come while a part is warming: another one than that of tuples that come when it has retired,
as a retired part makes pairs of one of each."""


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

    @property
    def is_whole(self) -> bool:
        """Whether it is the join of all sources, for a mechanism to place."""
        return self.node == ANYWHERE


WHOLE = JoinPart(-1, -1, (0, SLOTS), (0, SLOTS), ANYWHERE)


@dataclass(slots=True)
class Running:
    """A part that runs."""

    part: JoinPart
    operator: OperatorId | None = None
    """Its join."""
    retired: bool = False
    warming: bool = False
    """Whether it only remembers so far: another join still answers."""


Split = tuple[OperatorId, tuple[Slots, ...]]


class Wiring:
    """One query's operators. It edits the plan and writes down operators to be placed; the engine does the rest."""

    def __init__(
        self, catalog: Catalog, log: ChangeLog, shape: JoinShape, shared: dict[Signature, OperatorId] | None = None
    ) -> None:
        """`shared` are sources that other queries may read as well; by default all of the catalog's."""
        self.catalog, self.log, self.shape = catalog, log, shape
        self.operators = CutOperators(catalog, catalog.running if shared is None else shared)
        self.sink_node = catalog.topology.known_id(shape.sink_node)
        self.producers = [(side, node) for side, each in enumerate((shape.left, shape.right)) for node in each.nodes]
        """The side and the node of each source, by its number: the left side's first, then those that came later."""
        self.parts: list[Running] = []
        self.legacy: Legacy | None = None
        """The operators that still answer for the query while its parts are warming."""
        self.former: Running | None = None
        """The join of that."""
        self._own: dict[OperatorId, None] = {}
        """All operators between the sources and the rest of the query."""
        self._gates: list[OperatorId] = []
        self._merge: OperatorId | None = None
        self._rest: dict[OperatorId, OperatorId] = {}
        """Operators of the query's plan behind the merge, and their counterparts here."""
        self._flag = fresh(("marked",), (*shape.left.schema.names, *shape.right.schema.names))[0]

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
        """Parts that answer for the past only, and the join that is being taken over."""
        return [*(r for r in self.parts if r.retired), *([self.former] if self.former else [])]

    @property
    def is_whole(self) -> bool:
        """Whether a mechanism places the join."""
        return any(p.is_whole for p in self.active)

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

    def take_over(self, parts: Iterable[JoinPart], legacy: Legacy, cause: str) -> None:
        """Begins parts beside the join of a query that runs."""
        self.parts = [Running(p, warming=True) for p in joined_up(parts)]
        self._adopt(legacy)
        self._write(cause)

    def _adopt(self, legacy: Legacy) -> None:
        query = self.shape.query
        self.legacy, self.former = legacy, Running(WHOLE, legacy.join, retired=True)
        self.operators.sources.update(legacy.sources)
        self._rest.update(zip(query.plan.sinks, sinks_of(self.catalog, query.id), strict=True))

    def restore(self, record: Mapping[str, Any]) -> None:
        """Adds the query to the plan as it was recorded. Where its operators run is known to the caller."""
        self.producers = [(int(side), str(node)) for side, node in record["producers"]]
        legacy = record.get("legacy")
        for a, b, c, d, e, f, node, retired in record["parts"]:
            part = JoinPart(a, b, (c, d), (e, f), NodeId(node))
            self.parts.append(Running(part, retired=bool(retired), warming=legacy is not None))
        self.operators.given = [OperatorId(o) for o in reversed(record["operators"])]
        if legacy is not None:
            self._adopt(Legacy.of_json(legacy))
        left, _ = self._build()
        self._know()
        if legacy is not None:
            self.log.write(self.operators.release(left), (), "the coordinator started again")
            return
        sinks = tuple(self._rest[s] for s in self.shape.query.plan.sinks)
        self.catalog.plan.add_query(RunningQuery(self.shape.query, sinks))

    def change(self, parts: Iterable[JoinPart], cause: str, spent: Sequence[Running] = ()) -> bool:
        """Cuts it like this from now on; says whether anything changes. `spent` parts end if they have retired."""
        wanted = {_ranges(p): p for p in joined_up(parts)}
        before = {_ranges(r.part): r for r in self.parts if not r.retired}
        ended = [r for r in spent if r.retired]
        is_taken = any(r is self.former for r in ended)
        if {k: r.part for k, r in before.items()} == wanted and not ended and not self._is_displaced():
            return False
        for ranges, running in before.items():
            if ranges in wanted:
                running.part = wanted[ranges]
            else:
                running.retired = True
        warming = self.legacy is not None
        self.parts = [r for r in self.parts if not r.retired or (not warming and all(r is not s for s in spent))]
        self.parts += [Running(p, warming=warming) for ranges, p in wanted.items() if ranges not in before]
        if self.legacy is not None and is_taken and wanted.keys() == before.keys():
            self._end_legacy(cause)
            return True
        if self.legacy is not None:  # what begins now has not seen what the others have
            self.former = Running(WHOLE, self.legacy.join, retired=True)
        self._write(cause)
        return True

    def _end_legacy(self, cause: str) -> None:
        """The parts answer from now on."""
        assert self.legacy is not None
        left = [self.legacy.end, *(operator for operator, _ in self.legacy.gates)]
        self.legacy = self.former = None
        for running in self.parts:
            running.warming = False
        self._write(cause)
        self.log.write(self.operators.release(left), (), cause)

    def _is_displaced(self) -> bool:
        """Whether a part's join is pinned elsewhere."""
        plan = self.catalog.plan
        parts = (r for r in self.parts if r.operator is not None and not r.part.is_whole)
        return any(plan[r.operator].pin != r.part.node for r in parts if r.operator is not None)

    def move(self, running: Running, node: NodeId) -> None:
        """A part goes to another node with the next change: its own has left."""
        running.part = replace(running.part, node=node)

    # ---------------------------------------------------------------- operators

    def _write(self, cause: str) -> None:
        """Changes the plan to match the parts, and writes down operators to be placed or removed."""
        operators, plan, before = self.operators, self.catalog.plan, self._own
        sources = [o for o in operators.visited if isinstance(plan[o].spec, Source)]
        operators.begin()
        left, moved = self._build()
        self._know()
        gone = [o for o in before if o not in self._own]
        operators.remove(gone)
        unread = operators.release([*sources, *(o for o in left if o not in before)])
        self.log.write([*operators.fresh, *moved, *gone, *unread], (), cause)

    def _know(self) -> None:
        """Takes note of all operators of the present cut."""
        assert self._merge is not None
        joins = [r.operator for r in self.parts if r.operator is not None]
        self._own = dict.fromkeys([*self.operators.made, *joins, *self._gates, self._merge])
        plan, query = self.catalog.plan, self.shape.query.id
        plan.bundles[query] = dict.fromkeys([*self._own, *self._rest.values()])
        plan.replacing.add(query)
        if self.is_whole and not self.retired:
            plan.replacing.discard(query)

    def _build(self) -> tuple[list[OperatorId], list[OperatorId]]:
        """Adds missing operators, connects those that stay; returns those that the query's own do not read any more,
        and those that have to move."""
        moved: list[OperatorId] = []
        self._gates = []
        used = {p.part.source(side) for p in self.parts if not p.part.is_whole for side in (LEFT, RIGHT)}
        if any(r.part.is_whole for r in self.parts):
            used = set(range(len(self.producers)))
        ends = self._ends_of_sources(used)
        splits = self._splits(ends)
        outputs: dict[NodeId, list[OperatorId]] = {}
        unmarked = Map(_same(beside(self.shape.left.schema, self.shape.right.schema)))
        for running in self.parts:
            node = None if running.part.is_whole else running.part.node
            if node is None:
                inputs = self._whole(running, ends, LEFT), self._whole(running, ends, RIGHT)
            else:
                inputs = self._arrival(running, LEFT, splits), self._arrival(running, RIGHT, splits)
            moved += self._join(running, inputs)
            assert running.operator is not None
            top = self.operators.operator(unmarked, (running.operator,), node)
            for spec in self.shape.behind:
                top = self.operators.operator(spec, (top,), node, slots=int(node is None))
            outputs.setdefault(running.part.node, []).append(top)
        tops = [self._united(tuple(o), None if n == ANYWHERE else n) for n, o in outputs.items()]
        left, settled = self._finish((*tops, *self._legacy_tops()))
        return left, [*moved, *settled]

    def _splits(self, ends: Mapping[int, OperatorId]) -> dict[tuple[int, int, NodeId], Split]:
        """For each side, source and node that joins, what travels there."""
        needed: dict[tuple[int, int, NodeId], list[Slots]] = {}
        for running in self.parts:
            for side in (LEFT, RIGHT) if not running.part.is_whole else ():
                key = (side, running.part.source(side), running.part.node)
                needed.setdefault(key, []).append(running.part.slots(side))
        found: dict[tuple[int, int, NodeId], Split] = {}
        for (side, source, node), ranges in needed.items():
            covered = together(ranges)
            place = self.catalog.plan[ends[source]].pin
            assert place is not None
            found[side, source, node] = self._kept(ends[source], covered, EVERYTHING, place), covered
        return found

    def _ends_of_sources(self, wanted: set[int]) -> dict[int, OperatorId]:
        """For each source what its tuples are after the query's filters and projections, beside the source."""
        found: dict[int, OperatorId] = {}
        for number, (place, name) in enumerate(self.producers):
            if number in wanted:
                side = self.side(place)
                top = self.operators.source(replace(side.source, node=name))
                for spec in side.chain:
                    top = self.operators.operator(spec, (top,), self.catalog.topology.known_id(name))
                found[number] = top
        return found

    def _kept(self, below: OperatorId, ranges: tuple[Slots, ...], given: tuple[Slots, ...], node: NodeId) -> OperatorId:
        """Only these positions of an operator's output, which has the given ones."""
        if ranges == given:
            return below
        schema = self.catalog.plan[below].schema
        return self.operators.operator(Filter(predicate(schema, ranges)), (below,), node)

    def _united(self, operators: tuple[OperatorId, ...], node: NodeId | None) -> OperatorId:
        return self.operators.operator(Union(), operators, node) if len(operators) > 1 else operators[0]

    def _arrival(self, running: Running, side: int, splits: Mapping[tuple[int, int, NodeId], Split]) -> OperatorId:
        """The input of one side of a part: its own positions, marked if it has retired or is warming."""
        part = running.part
        split, covered = splits[side, part.source(side), part.node]
        own = self._kept(split, together([part.slots(side)]), covered, part.node)
        return self._marked(running, own, part.node)

    def _whole(self, running: Running, ends: Mapping[int, OperatorId], side: int) -> OperatorId:
        """The input of one side of the whole join."""
        tops = tuple(ends[number] for number, (place, _) in enumerate(self.producers) if place == side)
        return self._marked(running, self._united(tops, None), None)

    def _marked(self, running: Running, below: OperatorId, node: NodeId | None) -> OperatorId:
        mark = TRUE if running.retired else WARMING if running.warming else FALSE
        columns = (*_same(self.catalog.plan[below].schema), Named(self._flag, mark))
        return self.operators.operator(Map(columns), (below,), node)

    def _join(self, running: Running, inputs: tuple[OperatorId, OperatorId]) -> list[OperatorId]:
        """The part's join, made or connected anew; returned if it has to move."""
        plan, whole = self.catalog.plan, running.part.is_whole
        if running.operator is None:
            node = None if whole else running.part.node
            running.operator = self.operators.add(_marked_join(self.shape, self._flag), inputs, node, int(whole))
            return []
        self.operators.visit(running.operator)
        self.operators.connect(running.operator, inputs)
        record = plan[running.operator]
        if whole or record.pin == running.part.node:
            return []
        record.pin = running.part.node
        plan.readers_changed()
        if record.state is OperatorState.PLACED:
            record.become(OperatorState.TO_BE_REPLACED)
        return [record.id]

    def _legacy_tops(self) -> list[OperatorId]:
        """The results of what still answers, and its gates, which are new with every change."""
        found: list[OperatorId] = []
        if self.legacy is not None:
            plan, wanted = self.catalog.plan, self.shape.query.plan.schemas[self.shape.end]
            given = plan[self.legacy.end].schema
            columns = tuple(Named(to.name, Column(of.name, of.type)) for to, of in zip(wanted, given, strict=True))
            found.append(self.operators.operator(Map(columns), (self.legacy.end,), self.sink_node))
            for operator, node in self.legacy.gates:
                shut, empty = gate(plan[operator].schema, wanted)
                below = self.operators.add(shut, (operator,), node)
                self._gates.append(below)
                found.append(self.operators.operator(empty, (below,), node))
        return found

    def _finish(self, tops: tuple[OperatorId, ...]) -> tuple[list[OperatorId], list[OperatorId]]:
        """The merge beside the sink, which is new with every change, and the rest of the query behind it.

        Because the merge is new, all that changes belongs to one reconfiguration and takes effect at one place of each
        source's tuples. Gives operators that are not read any more, and those that have to be placed anew.
        """
        plan, whole = self.shape.query.plan, self.is_whole
        left: list[OperatorId] = []
        settled: list[OperatorId] = []
        self._merge = self.operators.add(Union(), tops, None if whole else self.sink_node)
        for own in self.shape.rest:
            spec = plan.operators[own]
            inputs = tuple(self._merge if i == self.shape.end else self._rest[i] for i in plan.inputs[own])
            free = whole and not isinstance(spec, Sink)
            node = None if free else self.sink_node
            if own in self._rest:
                self.operators.visit(self._rest[own])
                left += self.operators.connect(self._rest[own], inputs)
                if not isinstance(spec, Sink) and self.operators.settle(self._rest[own], node):
                    settled.append(self._rest[own])
            else:
                self._rest[own] = self.operators.add(spec, inputs, node, int(free))
        return left, settled


def record_of(wiring: Wiring) -> dict[str, Any]:
    """The present cut as JSON values: enough to make the same operators again, with the same numbers."""
    parts = [
        [p.left, p.right, *p.left_slots, *p.right_slots, int(p.node), r.retired] for r in wiring.parts for p in [r.part]
    ]
    operators = [int(o) for o in wiring.operators.visited]
    found = {"producers": [list(p) for p in wiring.producers], "parts": parts, "operators": operators}
    return found if wiring.legacy is None else found | {"legacy": wiring.legacy.as_json()}


def _marked_join(shape: JoinShape, flag: str) -> Operator:
    """The query's join over tuples with a mark: not two that came when the part had retired, and not two that came
    while it was warming."""
    sides = (shape.left.schema, shape.right.schema)
    left, right = (output_schema(Map((*_same(s), Named(flag, FALSE))), (s,)) for s in sides)
    names = beside(left, right).names
    marks = [Column(names[len(shape.left.schema)], BOOLEAN), Column(names[-1], BOOLEAN)]
    retired = call("coalesce", call("and", *marks), FALSE)
    condition: Expression = call("and", call("not", retired), call("not", call("is_null", call("coalesce", *marks))))
    if shape.join.condition is not None:
        condition = call("and", shape.join.condition, condition)
    return replace(shape.join, condition=condition)


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
