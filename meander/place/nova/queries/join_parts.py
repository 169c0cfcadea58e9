"""The parts of a join, and the operators of each: what arrives at it, marked, and the join over that."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from meander.model.expressions.functions import call
from meander.model.expressions.tree import FALSE, TRUE, Column, Expression, Literal, Named
from meander.model.global_plan import OperatorState
from meander.model.ids import NodeId, OperatorId
from meander.model.operators import Filter, Map, Operator, Union, output_schema
from meander.model.schema import BOOLEAN, Schema, beside
from meander.place.nova.queries.cut_operators import CutOperators
from meander.place.nova.queries.shape import JoinShape
from meander.place.nova.queries.split import SLOTS, Slots, predicate, together

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
"""An operator that sends some positions of a source to a node, and these."""


class PartOperators:
    """The operators of one join's parts."""

    def __init__(self, operators: CutOperators, shape: JoinShape, flag: str) -> None:
        """`flag` is the column of marks."""
        self.operators, self.flag = operators, flag
        self.plan = operators.catalog.plan
        self._marked_join = marked_join(shape, flag)

    def kept(self, below: OperatorId, ranges: tuple[Slots, ...], given: tuple[Slots, ...], node: NodeId) -> OperatorId:
        """Only these positions of an operator's output, which has the given ones."""
        if ranges == given:
            return below
        schema = self.plan[below].schema
        return self.operators.operator(Filter(predicate(schema, ranges)), (below,), node)

    def united(self, operators: tuple[OperatorId, ...], node: NodeId | None) -> OperatorId:
        return self.operators.operator(Union(), operators, node) if len(operators) > 1 else operators[0]

    def arrival(self, running: Running, side: int, splits: Mapping[tuple[int, int, NodeId], Split]) -> OperatorId:
        """The input of one side of a part: its own positions, marked if it has retired or is warming."""
        part = running.part
        split, covered = splits[side, part.source(side), part.node]
        own = self.kept(split, together([part.slots(side)]), covered, part.node)
        return self._marked(running, own, part.node)

    def whole(self, running: Running, tops: tuple[OperatorId, ...]) -> OperatorId:
        """The input of one side of the whole join: all of these together."""
        return self._marked(running, self.united(tops, None), None)

    def _marked(self, running: Running, below: OperatorId, node: NodeId | None) -> OperatorId:
        mark = TRUE if running.retired else WARMING if running.warming else FALSE
        columns = (*same(self.plan[below].schema), Named(self.flag, mark))
        return self.operators.operator(Map(columns), (below,), node)

    def join(self, running: Running, inputs: tuple[OperatorId, OperatorId]) -> list[OperatorId]:
        """The part's join, made or connected anew; returned if it has to move."""
        plan, whole = self.plan, running.part.is_whole
        if running.operator is None:
            node = None if whole else running.part.node
            running.operator = self.operators.add(self._marked_join, inputs, node, int(whole))
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


def marked_join(shape: JoinShape, flag: str) -> Operator:
    """The query's join over tuples with a mark: not two that came when the part had retired, and not two that came
    while it was warming."""
    sides = (shape.left.schema, shape.right.schema)
    left, right = (output_schema(Map((*same(s), Named(flag, FALSE))), (s,)) for s in sides)
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


def ranges_of(part: JoinPart) -> tuple[int, int, Slots, Slots]:
    """The cells that a part answers for."""
    return part.left, part.right, part.left_slots, part.right_slots


def same(schema: Schema) -> tuple[Named, ...]:
    """A projection that changes nothing."""
    return tuple(Named(f.name, Column(f.name, f.type)) for f in schema)
