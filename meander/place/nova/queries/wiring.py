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

Of several joins each has a wiring. The results of one that another reads come together in its *hub*, which stays when
cuts change: the reader takes it for a source.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from meander.model.errors import InputError
from meander.model.global_plan import OperatorState, RunningQuery
from meander.model.ids import NodeId, OperatorId
from meander.model.operators import Map, Sink, Source, Union
from meander.model.schema import beside, fresh
from meander.model.signature import Signature
from meander.place.catalog import Catalog
from meander.place.changelog import ChangeLog
from meander.place.nova.queries.cut_operators import CutOperators
from meander.place.nova.queries.join_parts import (
    ANYWHERE,
    LEFT,
    RIGHT,
    WHOLE,
    JoinPart,
    PartOperators,
    Running,
    Split,
    joined_up,
    ranges_of,
    same,
)
from meander.place.nova.queries.shape import JoinShape, Side
from meander.place.nova.queries.split import EVERYTHING, Slots, together
from meander.place.nova.queries.takeover import Legacy, legacy_tops, sinks_of


class Wiring:
    """One query's operators. It edits the plan and writes down operators to be placed; the engine does the rest."""

    def __init__(
        self,
        catalog: Catalog,
        log: ChangeLog,
        shape: JoinShape,
        shared: dict[Signature, OperatorId] | None = None,
        stages: Sequence[Wiring] = (),
    ) -> None:
        """`shared` are sources that other queries may read as well; by default all of the catalog's. `stages` are the
        query's joins before this one."""
        self.catalog, self.log, self.shape = catalog, log, shape
        self.operators = CutOperators(catalog, catalog.running if shared is None else shared)
        self.sink_node = catalog.topology.known_id(shape.sink_node)
        self.stages: list[Wiring] = [*stages, self]
        for stage in stages:
            stage.stages.append(self)
        self.producers = [(number, node) for number, side in enumerate(shape.sides) for node in self._nodes_of(side)]
        """The side and the node of each source, by its number: the left side's first, then those that came later."""
        self.parts: list[Running] = []
        self.legacy: Legacy | None = None
        """The operators that still answer for the query while its parts are warming."""
        self.former: Running | None = None
        """The join of that."""
        self._own: dict[OperatorId, None] = {}
        """All operators between the sources and the rest of the query."""
        self._gates: list[OperatorId] = []
        self._ends: dict[int, NodeId | None] = {}
        """The nodes of the outputs that the cut reads, by the number of the source."""
        self._merge: OperatorId | None = None
        self._rest: dict[OperatorId, OperatorId] = {}
        """Operators of the query's plan behind the merge, and their counterparts here."""
        flag = fresh(("marked",), (*shape.left.schema.names, *shape.right.schema.names))[0]
        self.part_operators = PartOperators(self.operators, shape, flag)

    def side(self, number: int) -> Side:
        """The side that a source is on."""
        return self.shape.right if number else self.shape.left

    def _nodes_of(self, side: Side) -> tuple[str, ...]:
        return side.nodes if side.below is None else (self.stages[side.below].shape.sink_node,)

    @property
    def hub(self) -> OperatorId:
        """The operator whose output is that of the join, for others to read."""
        return self._rest[self.shape.end]

    def gather(self, node: str) -> None:
        """The results of the join come together at another node from the next change on."""
        self.shape = replace(self.shape, sink_node=node)
        self.sink_node = self.catalog.topology.known_id(node)

    def follow_hubs(self) -> bool:
        """Takes the results of other stages from where they are now; whether that is somewhere else."""
        before = list(self.producers)
        for number, (side, _) in enumerate(before):
            below = self.side(side).below
            if below is not None:
                self.producers[number] = side, self.stages[below].shape.sink_node
        return self.producers != before

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
        self._announce()

    def _announce(self) -> None:
        """The query is in the plan when all of its stages are."""
        query = self.shape.query
        if self.shape.is_last:
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
        self._announce()

    def change(self, parts: Iterable[JoinPart], cause: str, spent: Sequence[Running] = ()) -> bool:
        """Cuts it like this from now on; says whether anything changes. `spent` parts end if they have retired."""
        wanted = {ranges_of(p): p for p in joined_up(parts)}
        before = {ranges_of(r.part): r for r in self.parts if not r.retired}
        ended = [r for r in spent if r.retired and any(r is own for own in self.retired)]
        is_taken = any(r is self.former for r in ended)
        same = {k: r.part for k, r in before.items()} == wanted
        if same and not ended and not self._is_displaced() and not self._has_other_ends():
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

    def _has_other_ends(self) -> bool:
        """Whether results are wanted, or those of another stage come, from another node than before."""
        if len(self.stages) == 1:
            return False
        plan, end = self.catalog.plan, self._rest.get(self.shape.end)
        known = self.catalog.topology.known_id
        moved = any(node != known(self.producers[number][1]) for number, node in self._ends.items())
        return moved or (end is not None and plan[end].pin != self.sink_node)

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
        hubs = [w.hub for w in self.stages if w is not self and w.shape.end in w._rest]
        waiting = [hub for hub in hubs if plan[hub].state is not OperatorState.PLACED]
        self.log.write([*operators.fresh, *moved, *gone, *unread, *waiting], (), cause)

    def _know(self) -> None:
        """Takes note of all operators of the present cut."""
        assert self._merge is not None
        joins = [r.operator for r in self.parts if r.operator is not None]
        self._own = dict.fromkeys([*self.operators.made, *joins, *self._gates, self._merge])
        plan, query = self.catalog.plan, self.shape.query.id
        plan.bundles[query] = dict.fromkeys(o for w in self.stages for o in (*w._own, *w._rest.values()))
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
        self._ends = {number: self.catalog.plan[operator].pin for number, operator in ends.items()}
        splits, made = self._splits(ends), self.part_operators
        sides = [tuple(o for n, o in ends.items() if self.producers[n][0] == side) for side in (LEFT, RIGHT)]
        outputs: dict[NodeId, list[OperatorId]] = {}
        unmarked = Map(same(beside(self.shape.left.schema, self.shape.right.schema)))
        for running in self.parts:
            node = None if running.part.is_whole else running.part.node
            if node is None:
                inputs = made.whole(running, sides[LEFT]), made.whole(running, sides[RIGHT])
            else:
                inputs = made.arrival(running, LEFT, splits), made.arrival(running, RIGHT, splits)
            moved += made.join(running, inputs)
            assert running.operator is not None
            top = self.operators.operator(unmarked, (running.operator,), node)
            for spec in self.shape.behind:
                top = self.operators.operator(spec, (top,), node, slots=int(node is None))
            outputs.setdefault(running.part.node, []).append(top)
        tops = [made.united(tuple(o), None if n == ANYWHERE else n) for n, o in outputs.items()]
        if self.legacy is not None:
            wanted = self.shape.query.plan.schemas[self.shape.end]
            former, self._gates = legacy_tops(self.operators, self.legacy, wanted, self.sink_node)
            tops += former
        left, settled = self._finish(tuple(tops))
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
            found[side, source, node] = self.part_operators.kept(ends[source], covered, EVERYTHING, place), covered
        return found

    def _ends_of_sources(self, wanted: set[int]) -> dict[int, OperatorId]:
        """For each source what its tuples are after the query's filters and projections, beside the source."""
        found: dict[int, OperatorId] = {}
        for number, (place, name) in enumerate(self.producers):
            if number in wanted:
                side = self.side(place)
                if side.below is None:
                    top = self.operators.source(replace(side.source, node=name))
                else:
                    top = self.stages[side.below].hub
                for spec in side.chain:
                    top = self.operators.operator(spec, (top,), self.catalog.topology.known_id(name))
                found[number] = top
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
        rest = {own: (plan.operators[own], plan.inputs[own]) for own in self.shape.rest}
        if not self.shape.is_last:
            rest[self.shape.end] = Map(same(plan.schemas[self.shape.end])), (self.shape.end,)
        for own, (spec, below) in rest.items():
            inputs = tuple(self._merge if i == self.shape.end else self._rest[i] for i in below)
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
