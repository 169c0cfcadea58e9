"""Rewrites: how the tasks of a round become runs of Spark plans. One file each, and one ordered table of them.

A task goes through the table from top to bottom; each rewrite sees what the ones above have made of it. The table has
four sections, by what a rewrite looks at. `meander explain --physical` prints what it makes of a query.
"""

from __future__ import annotations

from typing import Any

from meander.run.execution.rewrites.executors import Executors
from meander.run.execution.rewrites.late_materialisation import LateMaterialisation
from meander.run.execution.rewrites.merge_equal_plans import MergeEqualPlans
from meander.run.execution.rewrites.operator_at_a_time import OperatorAtATime
from meander.run.execution.rewrites.partial_aggregation import PartialAggregation
from meander.run.execution.rewrites.partitioning import Partitioning
from meander.run.execution.rewrites.prune_columns import PruneColumns
from meander.run.execution.rewrites.rewrite import PlanRun, Rewrite
from meander.run.execution.rewrites.trailing_projection import TrailingProjection
from meander.run.execution.runner import Task

READINESS: tuple[Rewrite[Task], ...] = (TrailingProjection(), OperatorAtATime())
"""By which plans are ready: tiered execution."""

ROUND: tuple[Rewrite[Task], ...] = (MergeEqualPlans(),)
"""By the tasks that are ready together."""

BATCH: tuple[Rewrite[PlanRun], ...] = (Executors(), PartialAggregation(), Partitioning())
"""By the size of one task's batch."""

COLUMNS: tuple[Rewrite[PlanRun], ...] = (LateMaterialisation(), PruneColumns())
"""By the columns that one run of a plan reads."""

REWRITES: tuple[Rewrite[Any], ...] = (*READINESS, *ROUND, *BATCH, *COLUMNS)
