"""A plan under change: rules edit it operator by operator, and it becomes a checked plan again at the end."""

from __future__ import annotations

from meander.model.expressions.functions import call
from meander.model.expressions.tree import Column, Expression, rewrite
from meander.model.ids import OperatorId
from meander.model.operators import Filter, Operator, Sink, output_schema
from meander.model.plan import QueryPlan
from meander.model.schema import Schema


class PlanDraft:
    """Operators and edges that can change. `changed` says whether they have."""

    def __init__(self, plan: QueryPlan) -> None:
        self.plan = plan
        self.operators = dict(plan.operators)
        self.inputs = dict(plan.inputs)
        self.changed = False
        self._schemas: dict[OperatorId, Schema] = {}

    def schema(self, operator: OperatorId) -> Schema:
        """The columns that an operator gives now."""
        if operator not in self._schemas:
            below = tuple(map(self.schema, self.inputs[operator]))
            self._schemas[operator] = output_schema(self.operators[operator], below)
        return self._schemas[operator]

    def only_reader(self, operator: OperatorId) -> bool:
        """Whether one operator alone reads this one, and only once."""
        return sum(each == operator for inputs in self.inputs.values() for each in inputs) == 1

    def add(self, operator: Operator, *inputs: OperatorId) -> OperatorId:
        new = OperatorId(max(self.operators) + 1)
        self.set(new, operator, *inputs)
        return new

    def add_filter(self, below: OperatorId, parts: list[Expression]) -> OperatorId:
        """A filter for all of these, or nothing where there are none."""
        return self.add(Filter(conjunction(parts)), below) if parts else below

    def set(self, at: OperatorId, operator: Operator, *inputs: OperatorId) -> None:
        self.operators[at], self.inputs[at] = operator, inputs
        self.changed = True
        self._schemas.clear()

    def bypass(self, operator: OperatorId, instead: OperatorId) -> None:
        """Lets all readers of an operator read another one."""
        for reader, inputs in self.inputs.items():
            self.inputs[reader] = tuple(instead if each == operator else each for each in inputs)
        del self.operators[operator], self.inputs[operator]
        self.changed = True
        self._schemas.clear()

    def finished(self) -> QueryPlan:
        """The plan again; operators that no sink needs any more are gone."""
        if not self.changed:
            return self.plan
        needed: set[OperatorId] = set()
        waiting = [o for o, operator in self.operators.items() if isinstance(operator, Sink)]
        while waiting:
            operator = waiting.pop()
            if operator not in needed:
                needed.add(operator)
                waiting.extend(self.inputs[operator])
        return QueryPlan(
            {o: each for o, each in self.operators.items() if o in needed},
            {o: each for o, each in self.inputs.items() if o in needed},
        ).numbered()


def conjunction(parts: list[Expression]) -> Expression:
    return parts[0] if len(parts) == 1 else call("and", *parts)


def substituted(expression: Expression, meaning: dict[str, Expression]) -> Expression:
    """The expression with what its columns stand for."""
    return rewrite(expression, lambda e: meaning.get(e.name, e) if isinstance(e, Column) else e)
