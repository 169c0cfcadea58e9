"""Templates: what a fragment computes, with its ids, names and places taken out.

Two fragments with the same operators, expressions and types have the same template and run as one frame. A template is
a list of stages in dataflow order; a stage is one plan of Spark: tuples in, through filters and maps, at most one
operator with memory, through filters and maps again, out. Most fragments have a single stage.

The driver's part: attach fragment and watermark to the rows (`Stage.reads`, `StateTable.frame_schema`), run
`Stage.plan` over the frames, take the result apart with `Stage.split`, keep channels and state.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from meander.model.expressions.tree import Named
from meander.model.ids import OperatorId
from meander.model.operators import (
    STATEFUL as STATEFUL_OPERATORS,
)
from meander.model.operators import (
    Binary,
    Filter,
    Map,
    Operator,
    Sink,
    Source,
    Union,
    UserFunction,
    WindowAggregate,
    output_schema,
    with_renamed_inputs,
)
from meander.model.schema import Schema
from meander.run.fragments.operator_merging import merged
from meander.run.fragments.stage_nodes import StageEdge, StageNode
from meander.run.frames import (
    AFTER,
    BUCKET,
    FRAGMENT,
    HIDDEN,
    TAG,
    arrow_type,
    by_position,
    frame_schema,
    positions,
    sliced,
)
from meander.run.memoised import memoised
from meander.run.operators import STATEFUL, STATELESS, user_function
from meander.run.operators.filter import predicate
from meander.run.operators.state import Stateful, StateTable


@dataclass(frozen=True)
class TemplateResult:
    """The rows of one stage: its output, and for each state table the rows to append with their buckets."""

    output: pa.Table
    states: tuple[pa.Table, ...]


@dataclass(frozen=True)
class Stage:
    """One plan of Spark: a tree of nodes whose leaves are edges. Node numbers below zero are leaves."""

    number: int
    reads: tuple[StageEdge, ...]
    schemas: tuple[Schema, ...]
    nodes: tuple[StageNode, ...]
    lag_ms: int
    """The lag of this stage's watermark behind that of its ports, because of stages before it."""

    @cached_property
    def key(self) -> str:
        """Equal for stages that have the same plan, wherever their tuples come from."""
        nodes = [(as_text(n.operator), n.inputs, as_text(n.schema), n.names) for n in self.nodes]
        return digest([as_text(s) for s in self.schemas], nodes)

    @cached_property
    def stateful(self) -> Stateful | None:
        """The operator with memory, prepared for its schemas."""
        node = self.remembering
        return None if node is None else STATEFUL[type(node.operator)](node.operator, self._inputs_of(node))

    @property
    def remembering(self) -> StageNode | None:
        """The node of the operator with memory."""
        found = [n for n in self.nodes if isinstance(n.operator, STATEFUL_OPERATORS)]
        return found[0] if found else None

    @cached_property
    def read_directly(self) -> tuple[tuple[int, ...], ...] | None:
        """For each input of the operator with memory the edges that it reads, if only unions lie between."""
        node = self.remembering
        found = [self._leaves(i) for i in node.inputs] if node else [None]
        return None if None in found else tuple(leaves for leaves in found if leaves is not None)

    def _leaves(self, number: int) -> tuple[int, ...] | None:
        if number < 0:
            return (-1 - number,)
        node = self.nodes[number]
        below = [self._leaves(i) for i in node.inputs] if isinstance(node.operator, Union) else [None]
        same = all(self._schema(i).types == node.schema.types for i in node.inputs)
        return tuple(leaf for leaves in below for leaf in leaves or ()) if same and None not in below else None

    def _inputs_of(self, node: StageNode) -> tuple[Schema, ...]:
        schemas = [self._schema(i) for i in node.inputs]
        starts = [0, len(schemas[0])] if isinstance(node.operator, Binary) else [0] * len(schemas)
        return tuple(by_position(s, start) for s, start in zip(schemas, starts, strict=True))

    def _schema(self, number: int) -> Schema:
        return self.nodes[number].schema if number >= 0 else self.schemas[-1 - number]

    @property
    def schema(self) -> Schema:
        """Types of the output, columns by position."""
        return self.nodes[-1].schema if self.nodes else self.schemas[0]

    @property
    def states(self) -> tuple[StateTable, ...]:
        return self.stateful.states if self.stateful else ()

    @property
    def watermark(self) -> bool:
        """Whether rows that are read carry the watermark after the step."""
        return self.stateful is not None and self.stateful.watermark

    @property
    def out_lag_ms(self) -> int:
        """The lag of the watermark behind this stage, against that of its ports."""
        return self.lag_ms + (self.stateful.lag_ms if self.stateful else 0)

    @cached_property
    def frame_schemas(self) -> tuple[pa.Schema, ...]:
        """Arrow schemas of the frames that `plan` takes: one for each edge, then one for each state table."""
        edges = (frame_schema(s, watermark=self.watermark) for s in self.schemas)
        return (*edges, *(t.frame_schema for t in self.states))

    @cached_property
    def nothing(self) -> pa.Table:
        """An output without rows."""
        return frame_schema(self.schema).empty_table()

    def plan(self, frames: Sequence[DataFrame]) -> DataFrame:
        """The frame of a step, output and state rows together. It depends on nothing but the schemas of the frames."""
        inputs, states = frames[: len(self.reads)], frames[len(self.reads) :]
        node = self.remembering
        if node is None:
            carried = (FRAGMENT, *HIDDEN)
            return self._frames(inputs, carried)[-1] if self.nodes else inputs[0].selectExpr(*carried, *self._columns())
        assert self.stateful is not None
        below = self._below(inputs, node)
        return self.stateful.step(below, states, self._after)

    def late(self, frames: Sequence[DataFrame]) -> DataFrame:
        """The tuples that came too late for the operator with memory, as it would have read them."""
        node = self.remembering
        assert self.stateful is not None
        assert node is not None
        return self.stateful.late(self._below(frames[: len(self.reads)], node))

    def _below(self, inputs: Sequence[DataFrame], node: StageNode) -> list[DataFrame]:
        carried = (FRAGMENT, *HIDDEN, AFTER) if self.watermark else (FRAGMENT, *HIDDEN)
        made = self._frames(inputs, carried, stop=self.nodes.index(node))
        return [made[i] if i >= 0 else inputs[-1 - i] for i in node.inputs]

    def _frames(self, inputs: Sequence[DataFrame], carried: Sequence[str], stop: int | None = None) -> list[DataFrame]:
        made: list[DataFrame] = []
        for node in self.nodes[:stop]:
            below = [made[i] if i >= 0 else inputs[-1 - i] for i in node.inputs]
            if isinstance(node.operator, UserFunction):
                made.append(user_function.apply(node.operator, below, carried, node.names))
            else:
                made.append(STATELESS[type(node.operator)](node.operator, below, carried))
        return made

    def _after(self, frame: DataFrame, carried: Sequence[str]) -> DataFrame:
        """Filters and maps behind the operator with memory; rows of state pass untouched."""
        assert self.remembering is not None
        for node in self.nodes[self.nodes.index(self.remembering) + 1 :]:
            if isinstance(node.operator, Filter):
                frame = frame.where(f"{TAG} <> 0 OR {predicate(node.operator)}")
            else:
                frame = STATELESS[Map](node.operator, [frame], carried)
        return frame

    def _columns(self) -> tuple[str, ...]:
        return positions(len(self.schema))

    def split(self, result: pa.Table) -> TemplateResult:
        """The rows of a step's result by where they belong."""
        out = (FRAGMENT, *HIDDEN, *self._columns())
        if not self.states:
            return TemplateResult(result.select(out), ())
        wanted = [out, *((FRAGMENT, BUCKET, *table.names) for table in self.states)]
        own = sliced(result, result.column(TAG).to_numpy(), len(wanted))
        output, *states = (rows.select(names) for rows, names in zip(own, wanted, strict=True))
        return TemplateResult(output, tuple(states))

    def split_late(self, result: pa.Table) -> tuple[pa.Table, ...]:
        """Late tuples by the input they came from: fragment, hidden columns, columns of that input."""
        assert self.remembering is not None
        inputs = self._inputs_of(self.remembering)
        if TAG not in result.column_names:
            return (result.select([FRAGMENT, *HIDDEN, *inputs[0].names]),)
        tags = result.column(TAG)
        return tuple(
            result.filter(pc.equal(tags, i)).select([FRAGMENT, *HIDDEN, *s.names]) for i, s in enumerate(inputs)
        )


@dataclass(frozen=True)
class Template:
    """Stages in dataflow order, the schemas of the ports, and which edges leave."""

    key: str
    ports: tuple[Schema, ...]
    stages: tuple[Stage, ...]
    outputs: tuple[StageEdge, ...]

    @cached_property
    def waves(self) -> tuple[tuple[Stage, ...], ...]:
        """The stages in dataflow order, those together that do not read each other."""
        depths: list[int] = []
        found: dict[int, list[Stage]] = {}
        for stage in self.stages:
            below = [e.stage for edge in stage.reads for e in (edge, *edge.union) if e.stage is not None]
            depths.append(1 + max((depths[number] for number in below), default=-1))
            found.setdefault(depths[-1], []).append(stage)
        return tuple(tuple(found[depth]) for depth in sorted(found))

    @cached_property
    def feeding(self) -> tuple[tuple[int, ...], ...]:
        """For each stage the ports whose tuples get to it: only for these its time waits."""
        found: list[tuple[int, ...]] = []
        for stage in self.stages:
            ports: set[int] = set()
            for edge in (e for read in stage.reads for e in (read.union or (read,))):
                ports.update(found[edge.stage] if edge.stage is not None else self._own(edge))
            found.append(tuple(sorted(ports)))
        return tuple(found)

    def ports_of(self, edge: StageEdge) -> tuple[int, ...]:
        """The ports whose tuples get to an edge."""
        return self._own(edge) if edge.stage is None else self.feeding[edge.stage]

    @staticmethod
    def _own(edge: StageEdge) -> tuple[int, ...]:
        assert edge.port is not None
        return (edge.port,)

    def lag_of(self, output: int) -> int:
        """The lag of an output's watermark behind that of its ports, in ms."""
        edge = self.outputs[output]
        return 0 if edge.stage is None else self.stages[edge.stage].out_lag_ms


@dataclass(frozen=True)
class FragmentMembers:
    """The operators that a template was made of, in dataflow order, with their inputs and outputs."""

    operators: Mapping[OperatorId, Operator]
    inputs: Mapping[OperatorId, tuple[OperatorId, ...]]
    schemas: Mapping[OperatorId, Schema]
    """Of the inputs, too."""

    def alone(self, operator: OperatorId) -> BoundFragment:
        """The template of one operator by itself, for a reader outside."""
        below = self.inputs[operator]
        inputs = {operator: below, OperatorId(-1): (operator,)}
        schemas = {o: self.schemas[o] for o in (operator, *below)}
        return bind({operator: self.operators[operator]}, inputs, [operator], schemas)


@dataclass(frozen=True)
class BoundFragment:
    """A template with one fragment's ids: the operators behind its ports and outputs, and those with memory."""

    template: Template
    ports: tuple[OperatorId, ...]
    outputs: tuple[OperatorId, ...]
    stateful: Mapping[int, OperatorId]
    """The operator whose state a stage keeps, by stage number."""
    members: FragmentMembers


def digest(*parts: object) -> str:
    """A short name for plain data."""
    return hashlib.blake2b(repr(parts).encode(), digest_size=16).hexdigest()


@memoised
def as_text(part: object) -> str:
    """An operator or a schema for a digest."""
    return repr(part)


def bind(
    operators: Mapping[OperatorId, Operator],
    inputs: Mapping[OperatorId, tuple[OperatorId, ...]],
    members: Iterable[OperatorId] | None = None,
    schemas: Mapping[OperatorId, Schema] | None = None,
    read: Collection[OperatorId] | None = None,
) -> BoundFragment:
    """The template of the members of a plan (all of them by default), bound to their ids.

    With `schemas` of all members and their inputs the rest of the plan need not be there, except who reads members;
    with `read`, the members that others read, not even those.

    Ports are the operators outside that members read, and the sources among the members, whose tuples come from outside
    as well. Outputs are members that others read, and sinks.
    """
    inside = frozenset(operators if members is None else members)
    return _Binder(operators, inputs, inside, schemas or {}, read).bound()


class _Binder:
    """Numbers the members, finds where stages end, and cuts the graph there."""

    def __init__(
        self,
        operators: Mapping[OperatorId, Operator],
        inputs: Mapping[OperatorId, tuple[OperatorId, ...]],
        members: frozenset[OperatorId],
        schemas: Mapping[OperatorId, Schema],
        read: Collection[OperatorId] | None,
    ) -> None:
        self.operators, self.inputs, self.members = operators, inputs, members
        self.schemas = dict(schemas)
        readers: dict[OperatorId, list[OperatorId]] = {m: [] for m in members}
        for reader, below in inputs.items():
            for operator_id in below:
                if operator_id in members:
                    readers[operator_id].append(reader)
        self.readers = readers
        leaving = {m for m in members if any(r not in members for r in readers[m])} if read is None else set(read)
        self.outputs = tuple(m for m in sorted(members) if isinstance(operators[m], Sink) or m in leaving)
        self.order = self._order()
        self.ports = tuple(
            dict.fromkeys(
                p
                for m in self.order
                for p in ([m] if isinstance(operators[m], Source) else [i for i in inputs[m] if i not in members])
            )
        )
        self.ends = self._ends()

    def _order(self) -> list[OperatorId]:
        """Members as a walk from the outputs meets them, inputs first: the same for every fragment of a template."""
        order: dict[OperatorId, None] = {}
        stack = [(o, False) for o in reversed(self.outputs)]
        while stack:
            operator_id, ready = stack.pop()
            if operator_id in order or operator_id not in self.members:
                continue
            if ready:
                order[operator_id] = None
            else:
                stack.append((operator_id, True))
                stack.extend((i, False) for i in reversed(self.inputs[operator_id]))
        return list(order)

    def _passes(self, operator_id: OperatorId) -> bool:
        """Sinks and sources only hand tuples on; the one below stands for them."""
        return isinstance(self.operators[operator_id], Sink | Source)

    def _ends(self) -> dict[OperatorId, int]:
        """Operators whose output leaves its stage, with the stage's number, in dataflow order."""
        ends = {self._below_sink(o) for o in self.outputs}
        for operator_id in self.order:
            if isinstance(self.operators[operator_id], STATEFUL_OPERATORS):
                end = operator_id
                while end not in ends and len(set(self.readers[end])) == 1:
                    reader = self.readers[end][0]
                    if reader not in self.members or not isinstance(self.operators[reader], Filter | Map):
                        break
                    end = reader
                ends.add(end)
        inside = [o for o in self.order if o in ends and not self._passes(o)]
        return {o: number for number, o in enumerate(inside)}

    def _below_sink(self, operator_id: OperatorId) -> OperatorId:
        return self.inputs[operator_id][0] if isinstance(self.operators[operator_id], Sink) else operator_id

    def bound(self) -> BoundFragment:
        stages: list[Stage] = []
        stateful: dict[int, OperatorId] = {}
        for end in self.ends:
            stage, remembering = self._stage(end, stages)
            stages.append(stage)
            if remembering is not None:
                stateful[stage.number] = remembering
        outputs = tuple(self._edge(self._below_sink(o)) for o in self.outputs)
        ports = tuple(by_position(self.schema(p)) for p in self.ports)
        key = digest([as_text(p) for p in ports], [(s.reads, s.key) for s in stages], outputs)
        template = Template(key, ports, tuple(stages), outputs)
        return BoundFragment(template, self.ports, self.outputs, stateful, self._members())

    def _members(self) -> FragmentMembers:
        inputs = {o: self.inputs[o] for o in self.order}
        near = dict.fromkeys((*self.order, *(i for below in inputs.values() for i in below)))
        return FragmentMembers({o: self.operators[o] for o in self.order}, inputs, {o: self.schema(o) for o in near})

    def schema(self, operator_id: OperatorId) -> Schema:
        """The schema of an operator's output, under the names of the plan; also of operators outside of the
        fragment."""
        if operator_id not in self.schemas:
            below = tuple(self.schema(i) for i in self.inputs[operator_id])
            self.schemas[operator_id] = output_schema(self.operators[operator_id], below)
        return self.schemas[operator_id]

    def _edge(self, operator_id: OperatorId) -> StageEdge:
        if operator_id in self.ends:
            return StageEdge(stage=self.ends[operator_id])
        return StageEdge(port=self.ports.index(operator_id))

    def _stage(self, end: OperatorId, before: Sequence[Stage]) -> tuple[Stage, OperatorId | None]:
        numbers: dict[OperatorId, int] = {}
        leaves: dict[tuple[OperatorId, ...], int] = {}
        nodes: list[StageNode] = []
        remembering: OperatorId | None = None

        def is_leaf(operator_id: OperatorId) -> bool:
            return operator_id != end and (operator_id in self.ends or operator_id in self.ports)

        def united(operator_id: OperatorId) -> tuple[OperatorId, ...] | None:
            """The leaves that an operator hands on, if it is one or unites nothing but leaves."""
            if is_leaf(operator_id):
                return (operator_id,)
            types = self.schema(operator_id).types
            below = self.inputs[operator_id] if isinstance(self.operators[operator_id], Union) else ()
            found = [united(i) if self.schema(i).types == types else None for i in below]
            return tuple(leaf for leaves in found for leaf in leaves or ()) if found and None not in found else None

        stack = [(end, False)]
        while stack:
            operator_id, ready = stack.pop()
            if operator_id in numbers:
                continue
            parts = united(operator_id)
            if parts is not None:
                leaves.setdefault(parts, -1 - len(leaves))
            if is_leaf(operator_id):
                continue
            if ready or parts is not None:
                below = self.inputs[operator_id]
                found = (
                    [numbers[i] if i in numbers else leaves[i,] for i in below] if parts is None else [leaves[parts]]
                )
                numbers[operator_id] = len(nodes)
                nodes.append(self._node(operator_id, tuple(found)))
                if isinstance(self.operators[operator_id], STATEFUL_OPERATORS):
                    remembering = operator_id
            else:
                stack.append((operator_id, True))
                stack.extend((i, False) for i in reversed(self.inputs[operator_id]))
        edges = {parts: tuple(self._edge(o) for o in parts) for parts in leaves}
        reads = tuple(e[0] if len(e) == 1 else StageEdge(union=e) for e in edges.values())
        inside = [e.stage for parts in edges.values() for e in parts if e.stage is not None]
        lag = max((before[stage].out_lag_ms for stage in inside), default=0)
        schemas = tuple(by_position(self.schema(parts[0])) for parts in leaves)
        return Stage(len(before), *merged(reads, schemas, nodes), lag), remembering

    def _node(self, operator_id: OperatorId, below: tuple[int, ...]) -> StageNode:
        operator = self.operators[operator_id]
        schemas = tuple(self.schema(i) for i in self.inputs[operator_id])
        names = schemas[0].names if isinstance(operator, UserFunction) else ()
        return StageNode(without_names(operator, *schemas), below, by_position(self.schema(operator_id)), names)


@memoised
def without_names(operator: Operator, *inputs: Schema) -> Operator:
    """The operator over columns by position; in a pair the right side's go on where the left side's end."""
    starts = [0, len(inputs[0])] if isinstance(operator, Binary) else [0] * len(inputs)
    targets = tuple(by_position(s, start) for s, start in zip(inputs, starts, strict=True))
    placed = with_renamed_inputs(operator, inputs, targets)
    match placed:
        case Map(columns):
            return Map(_numbered(columns, 0))
        case WindowAggregate(keys=keys, aggregates=aggregates):
            return replace(placed, keys=_numbered(keys, 2), aggregates=_numbered(aggregates, 2 + len(keys)))
    return placed


def _numbered(columns: tuple[Named, ...], start: int) -> tuple[Named, ...]:
    return tuple(Named(f"c{start + i}", c.expression) for i, c in enumerate(columns))


def output_table(table: pa.Table, schema: Schema) -> pa.Table:
    """Rows of an output under the names of a schema, hidden columns first, without the fragment."""
    names = [*HIDDEN, *schema.names]
    columns = [table.column(h) for h in HIDDEN]
    columns += [table.column(f"c{i}").cast(arrow_type(t)) for i, t in enumerate(schema.types)]
    return pa.table(columns, names)
