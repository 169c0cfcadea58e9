"""A query plan: operators and their edges. Plans are checked when they are made and never change."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from meander.model.demands import Demand
from meander.model.errors import InputError
from meander.model.ids import OperatorId, QueryId
from meander.model.operators import Operator, Sink, Source, arity, describe, kind_of, output_schema
from meander.model.schema import Schema


@dataclass(frozen=True)
class QueryPlan:
    """A directed acyclic graph of operators, from sources to sinks. Input order matters for joins."""

    operators: Mapping[OperatorId, Operator]
    inputs: Mapping[OperatorId, tuple[OperatorId, ...]]
    schemas: Mapping[OperatorId, Schema] = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        order = topological_order(self.inputs)
        self._check_shape()
        schemas: dict[OperatorId, Schema] = {}
        for operator_id in order:
            inputs = tuple(schemas[i] for i in self.inputs[operator_id])
            schemas[operator_id] = output_schema(self.operators[operator_id], inputs)
        object.__setattr__(self, "schemas", schemas)

    def _check_shape(self) -> None:
        if self.operators.keys() != self.inputs.keys():
            raise InputError("a plan needs the inputs of exactly its operators")
        fed = {i for inputs in self.inputs.values() for i in inputs}
        for operator_id, operator in self.operators.items():
            fewest, most = arity(operator)
            given = len(self.inputs[operator_id])
            if given < fewest or (most is not None and given > most):
                wanted = f"{fewest}" if fewest == most else f"at least {fewest}"
                raise InputError(
                    f"operator {operator_id} ({describe(operator)}) takes {wanted} inputs, but has {given}"
                )
            if isinstance(operator, Sink) == (operator_id in fed):
                problem = "feeds another operator" if isinstance(operator, Sink) else "feeds nothing"
                raise InputError(
                    f"operator {operator_id} ({describe(operator)}) {problem}; every path must end in a sink"
                )

    @cached_property
    def order(self) -> tuple[OperatorId, ...]:
        """Operators such that every one comes after its inputs."""
        return tuple(topological_order(self.inputs))

    @cached_property
    def outputs(self) -> dict[OperatorId, tuple[OperatorId, ...]]:
        """The readers of each operator's output."""
        result: dict[OperatorId, list[OperatorId]] = {o: [] for o in self.operators}
        for reader, inputs in self.inputs.items():
            for operator_id in dict.fromkeys(inputs):
                result[operator_id].append(reader)
        return {o: tuple(readers) for o, readers in result.items()}

    @cached_property
    def sources(self) -> tuple[OperatorId, ...]:
        return tuple(o for o, operator in self.operators.items() if isinstance(operator, Source))

    @cached_property
    def sinks(self) -> tuple[OperatorId, ...]:
        return tuple(o for o, operator in self.operators.items() if isinstance(operator, Sink))

    def numbered(self) -> QueryPlan:
        """The same plan with ids 1, 2, ... in the order a reader meets them, inputs first."""
        new: dict[OperatorId, OperatorId] = {}
        stack = [(sink, False) for sink in reversed(self.sinks)]
        while stack:
            operator_id, ready = stack.pop()
            if operator_id in new:
                continue
            if ready:
                new[operator_id] = OperatorId(len(new) + 1)
            else:
                stack.append((operator_id, True))
                stack.extend((i, False) for i in reversed(self.inputs[operator_id]))
        return QueryPlan(
            {new[o]: self.operators[o] for o in new},
            {new[o]: tuple(new[i] for i in self.inputs[o]) for o in new},
        )


@dataclass(frozen=True)
class Query:
    """A plan under the name its user gave it, with the qualities asked of it."""

    id: QueryId
    plan: QueryPlan
    demands: tuple[Demand, ...] = ()
    options: tuple[tuple[str, str], ...] = ()
    """Options of its placement: `mechanism`, and limits of its own for Nova."""


def topological_order(inputs: Mapping[OperatorId, Iterable[OperatorId]]) -> list[OperatorId]:
    """Inputs before readers; raises when an id is unknown or the graph has a cycle, naming the cycle."""
    order: list[OperatorId] = []
    state: dict[OperatorId, int] = {}
    for start in inputs:
        stack: list[tuple[OperatorId, bool]] = [(start, False)]
        path: list[OperatorId] = []
        while stack:
            node, leaving = stack.pop()
            if leaving:
                path.pop()
                state[node] = 2
                order.append(node)
                continue
            if state.get(node) == 2:
                continue
            if state.get(node) == 1:
                cycle = " -> ".join(map(str, [*path[path.index(node) :], node]))
                raise InputError(f"the plan has a cycle: {cycle}; remove one of these edges")
            if node not in inputs:
                raise InputError(f"the plan has no operator {node}, but another operator reads it")
            state[node] = 1
            path.append(node)
            stack.append((node, True))
            stack.extend((i, False) for i in reversed(list(inputs[node])) if state.get(i) != 2)
    return order


def drawn(plan: QueryPlan) -> str:
    """The plan as an indented tree, sinks first; an operator drawn before is only referred to."""
    lines: list[str] = []
    seen: set[OperatorId] = set()

    def draw(operator_id: OperatorId, prefix: str, branch: str, below: str) -> None:
        operator = plan.operators[operator_id]
        if operator_id in seen:
            lines.append(f"{prefix}{branch}{operator_id} {kind_of(operator)} (as above)")
            return
        seen.add(operator_id)
        lines.append(f"{prefix}{branch}{operator_id} {describe(operator)}")
        inputs = plan.inputs[operator_id]
        for i, upstream in enumerate(inputs):
            last = i == len(inputs) - 1
            draw(upstream, prefix + below, "└─ " if last else "├─ ", "   " if last else "│  ")

    for sink in plan.sinks:
        draw(sink, "", "", "")
    return "\n".join(lines)
