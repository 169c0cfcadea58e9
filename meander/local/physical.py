"""The physical plan of a query, for `meander explain --physical`: placed alone, deployed and bound, but not run."""

from __future__ import annotations

from dataclasses import dataclass, replace

from meander.lang.sql.script import Script
from meander.lang.topology.reader import TopologyFile
from meander.local.run_plan import plan_queries
from meander.model.ids import QueryId
from meander.model.plan import Query
from meander.run.execution.executors.runner import LEAST_ROWS
from meander.run.execution.physical import PhysicalFragment, physical, physical_text
from meander.run.execution.rewrites.rewrite import Conditions
from meander.run.fragments.template import BoundFragment, bind
from meander.run.session import usable_cores


@dataclass(frozen=True)
class PlannedQuery:
    """A query's fragments with how their stages would run."""

    query: QueryId
    mechanism: str | None
    """None if it is not placed: all of it is one fragment."""
    cores: int
    fragments: tuple[PhysicalFragment, ...]

    def text(self) -> str:
        placed = "as one fragment" if self.mechanism is None else f"as {self.mechanism} places it alone"
        cores = "1 core" if self.cores == 1 else f"{self.cores} cores"
        return physical_text(f"query {self.query}, {placed}, with {cores}", self.fragments)

    def as_json(self) -> dict[str, object]:
        fragments = [f.as_json() for f in self.fragments]
        return {"query": str(self.query), "mechanism": self.mechanism, "cores": self.cores, "physical": fragments}


def planned_query(
    script: Script, query: Query, world: TopologyFile | None, mechanism: str, cores: int | None = None
) -> PlannedQuery:
    """On `cores` of a machine, by default those of this one. Raises if the query cannot be placed."""
    now = Conditions(usable_cores() if cores is None else cores, LEAST_ROWS)
    bound: dict[str, BoundFragment] = {}
    if world is None:
        bound["the query"] = bind(query.plan.operators, query.plan.inputs)
    else:
        streams, sinks = {**world.streams, **script.streams}, {**world.sinks, **script.sinks}
        plan = plan_queries(replace(world, streams=streams, sinks=sinks), [query], mechanism)
        for fragment in plan.installation.fragments:
            node = plan.deployment.fragments[fragment.fragment].node
            bound[f"fragment {fragment.fragment} on {world.topology.name(node)}"] = fragment.bound
    return PlannedQuery(query.id, None if world is None else mechanism, now.cores, tuple(physical(bound, now)))
