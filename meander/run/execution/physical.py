"""The physical plan of fragments: how each of their stages would run, from the table of rewrites, without Spark.

Stages know their schemas, and rewrites decide by stage and size of the batch. What depends on the moment (which plans
are ready, what else waits in a round, whether rows are late) is said as a condition.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from meander.model.ids import OperatorId
from meander.model.operators import Union, UserFunction, describe
from meander.run.execution.prepared import LARGEST_BYTES
from meander.run.execution.rewrites import REWRITES
from meander.run.execution.rewrites.executors import Executors
from meander.run.execution.rewrites.late_materialisation import needs_no_plan
from meander.run.execution.rewrites.partial_aggregation import PartialAggregation
from meander.run.execution.rewrites.partitioning import (
    MOST_PARTITION_ROWS,
    Partitioning,
    key_of,
    least_rows,
    partitions_of,
)
from meander.run.execution.rewrites.rewrite import BY_POSITION, Conditions, Rewrite, StageNames, Verdict
from meander.run.execution.rewrites.trailing_projection import TrailingProjection
from meander.run.fragments.stage_nodes import StageEdge, StageNode
from meander.run.fragments.template import BoundFragment, Stage, without_names
from meander.run.frames import by_position

MEGABYTE = 1_000_000
PREPARED = "one prepared plan in the driver"


@dataclass(frozen=True, slots=True)
class Execution:
    """How batches of so many rows or more run."""

    from_rows: int
    how: str


@dataclass(frozen=True)
class PhysicalStage:
    """A stage with the verdict of every rewrite and how it is executed."""

    number: int
    operators: tuple[str, ...]
    rewrites: Mapping[str, Verdict]
    executions: tuple[Execution, ...]
    notes: tuple[str, ...]
    """The conditions that change the execution besides the size of a batch in rows."""


@dataclass(frozen=True)
class PhysicalFragment:
    """Fragments of one template, by name, and the stages of each."""

    fragments: tuple[str, ...]
    stages: tuple[PhysicalStage, ...]

    def lines(self) -> list[str]:
        """For people."""
        few = len(self.fragments) == 1
        found = [f"{self.fragments[0]}" if few else f"{', '.join(self.fragments)}: one template"]
        for stage in self.stages:
            title = f"  stage {stage.number}: "
            found += ["", f"{title}{stage.operators[0]}"]
            found += [f"{' ' * len(title)}{operator}" for operator in stage.operators[1:]]
            found += ["", "    rewrites"]
            width = max(map(len, stage.rewrites))
            for name, verdict in stage.rewrites.items():
                rows = f"{verdict.sizes}: " if verdict.applies and verdict.sizes else ""
                found.append(f"      {'yes' if verdict.applies else 'no ':<3} {name:<{width}}  {rows}{verdict.reason}")
            found += ["", "    execution"]
            ends = [each.from_rows - 1 for each in stage.executions[1:]]
            sizes = [_size(e.from_rows, end) for e, end in zip(stage.executions, [*ends, None], strict=True)]
            width = max(map(len, sizes))
            found += [f"      {size:<{width}}  {e.how}" for size, e in zip(sizes, stage.executions, strict=True)]
            found += [f"      {note}" for note in stage.notes]
        return found if self.stages else [*found, "", "  no stage: tuples pass"]

    def as_json(self) -> dict[str, object]:
        return {
            "fragments": list(self.fragments),
            "stages": [
                {
                    "stage": stage.number,
                    "operators": list(stage.operators),
                    "rewrites": [
                        {
                            "name": name,
                            "applies": verdict.applies,
                            "reason": verdict.reason,
                            "from_rows": verdict.from_rows,
                            "to_rows": verdict.to_rows,
                        }
                        for name, verdict in stage.rewrites.items()
                    ],
                    "execution": [{"from_rows": e.from_rows, "how": e.how} for e in stage.executions],
                    "notes": list(stage.notes),
                }
                for stage in self.stages
            ],
        }


def physical(bound: Mapping[str, BoundFragment], now: Conditions) -> list[PhysicalFragment]:
    """The physical plans of fragments by their names; those of one template are one."""
    alike: dict[str, list[str]] = {}
    for name, fragment in bound.items():
        alike.setdefault(fragment.template.key, []).append(name)
    places: dict[str, list[tuple[str, Stage]]] = {}
    for names in alike.values():
        for stage in bound[names[0]].template.stages:
            places.setdefault(stage.key, []).append((names[0], stage))
    found = []
    for names in alike.values():
        fragment, stages = bound[names[0]], []
        members = StageMembers(fragment)
        for stage in fragment.template.stages:
            others = [f"stage {s.number} of {n}" for n, s in places[stage.key] if s is not stage]
            here = replace(now, is_refused=_has_user_function, equal_stages={stage.key: others})
            stages.append(_physical_stage(stage, members, here))
        found.append(PhysicalFragment(tuple(names), tuple(stages)))
    return found


def _physical_stage(stage: Stage, members: StageMembers, now: Conditions) -> PhysicalStage:
    names = members.names(stage)
    verdicts = {rewrite.name: rewrite.verdict(stage, now, names) for rewrite in REWRITES}

    def of(rewrite: type[Rewrite[Any]]) -> Verdict:
        return verdicts[rewrite.name]

    executions, notes = [], []
    if needs_no_plan(stage, now):
        executions.append(Execution(0, "tuples pass in the driver; no plan runs"))
    elif now.is_refused(stage):
        executions.append(Execution(0, "a job of Spark, planned anew: a user function needs Python workers"))
    else:
        trailing = of(TrailingProjection)
        if trailing.applies and trailing.to_rows is not None:
            executions.append(Execution(0, f"{PREPARED}, the projection after it"))
            executions.append(Execution(trailing.to_rows + 1, PREPARED))
        else:
            executions.append(Execution(0, PREPARED))
        how = _partitions(stage, of(PartialAggregation), of(Partitioning), names)
        executions += _partitioned(how, now) if how is not None else ()
        notes.append(f"a run over more than {LARGEST_BYTES // MEGABYTE} MB: a job of Spark, planned anew")
    executors = of(Executors)
    if executors.applies:
        notes.append(f"{executors.sizes}, where there are executors: a job of Spark whose rows they fetch")
    operators = tuple(members.described(stage)) or ("no operator",)
    return PhysicalStage(stage.number, operators, verdicts, tuple(executions), tuple(notes))


def _partitions(stage: Stage, partial: Verdict, partitioning: Verdict, names: StageNames) -> str | None:
    """How the partitions of a large batch run; None if it has to stay whole."""
    by_key = "" if stage.stateful is None or not partitioning.applies else f" by key {key_of(stage, names)}"
    if partial.applies:
        return "partial aggregation, then the final one" + (f"; where rows are late,{by_key}" if by_key else "")
    return f"prepared plans beside each other{by_key and f',{by_key}'}" if partitioning.applies else None


def _partitioned(how: str, now: Conditions) -> Iterable[Execution]:
    """The sizes of batches at which their number of partitions changes, until it is one for each so many rows."""
    counted: dict[int, int] = {}
    first, cores = least_rows(now.cores), now.cores
    for rows in sorted({first, *(first // 2 * k for k in range(2, cores + 1)), cores * MOST_PARTITION_ROWS + 1}):
        counted.setdefault(partitions_of(rows, cores), rows)
    for count, rows in counted.items():
        more = f"; one more for each {MOST_PARTITION_ROWS:,} rows" if count > cores else ""
        yield Execution(rows, f"{count} partitions: {how}{more}")


def _has_user_function(stage: Stage) -> bool:
    return any(isinstance(node.operator, UserFunction) for node in stage.nodes)


def _size(first: int, last: int | None) -> str:
    if last is None:
        return f"from {first:,} rows" if first else "any batch"
    return f"up to {last:,} rows" if not first else f"{first:,} to {last:,} rows"


class StageMembers:
    """The operators of a fragment that the nodes of its stages stand for."""

    def __init__(self, bound: BoundFragment) -> None:
        self._ports, self._members = bound.ports, bound.members
        self._ends: dict[int, tuple[OperatorId, ...]] = {}
        self._nodes: dict[int, list[tuple[OperatorId, ...]]] = {}
        for stage in bound.template.stages:
            found: dict[int, tuple[OperatorId, ...]] = {-1 - i: self._behind(e) for i, e in enumerate(stage.reads)}
            for number, node in enumerate(stage.nodes):
                below = {o for i in node.inputs for o in found[i]}
                found[number] = tuple(o for o in self._members.operators if self._is(o, node, below))
            self._nodes[stage.number] = [found[number] for number in range(len(stage.nodes))]
            self._ends[stage.number] = found[len(stage.nodes) - 1]

    def _behind(self, edge: StageEdge) -> tuple[OperatorId, ...]:
        """The operators whose tuples an edge brings."""
        if edge.union:
            return tuple(o for part in edge.union for o in self._behind(part))
        if edge.stage is not None:
            return self._ends[edge.stage]
        assert edge.port is not None
        return (self._ports[edge.port],)

    def _is(self, operator_id: OperatorId, node: StageNode, below: set[OperatorId]) -> bool:
        members = self._members
        operator, inputs = members.operators[operator_id], members.inputs[operator_id]
        if type(operator) is not type(node.operator) or by_position(members.schemas[operator_id]) != node.schema:
            return False
        same = without_names(operator, *(members.schemas[i] for i in inputs)) == node.operator
        return same and all(self._reads(i, below) for i in inputs)

    def _reads(self, operator_id: OperatorId, below: set[OperatorId]) -> bool:
        """Whether an operator is one of these, or unites nothing but these: such a union is not always a node."""
        if operator_id in below:
            return True
        inputs = self._members.inputs.get(operator_id, ())
        is_union = isinstance(self._members.operators.get(operator_id), Union)
        return is_union and all(self._reads(i, below) for i in inputs)

    def described(self, stage: Stage) -> Iterable[str]:
        """Its operators in dataflow order; equal ones over united tuples are one."""
        for node, same in zip(stage.nodes, self._nodes[stage.number], strict=True):
            operator = self._members.operators[same[0]] if same else node.operator
            yield describe(operator) + (f" ({len(same)} operators)" if len(same) > 1 else "")

    def names(self, stage: Stage) -> StageNames:
        """The names of its columns: those of the first operator where several are one."""
        leaves = [self._behind(edge) for edge in stage.reads]
        ends = self._ends[stage.number]
        if not ends or not all(leaves):
            return BY_POSITION
        schemas = self._members.schemas
        return StageNames([schemas[own[0]].names for own in leaves], schemas[ends[0]].names)


def physical_text(title: str, fragments: Sequence[PhysicalFragment]) -> str:
    """Physical plans below a title, for people."""
    return "\n".join([title, *(f"  {line}".rstrip() for f in fragments for line in ("", *f.lines()))])
