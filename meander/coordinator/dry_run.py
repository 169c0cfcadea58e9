"""A dry run: the effect of changes, tried on a copy of the catalog. Nothing that runs is touched.

The copy has the escalation of the engine: its wider tries, and their credit. The deployment is compared with the
same operators held where they are, and kept apart, as in the deployer.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from meander.coordinator.change_reader import Changes
from meander.coordinator.loop import PlacementLoop
from meander.deploy.fragments import Deployment, DeploymentChange, Placed, redeploy
from meander.model.events import ChangeEvent
from meander.place.applicator import Applicator
from meander.place.catalog import Catalog
from meander.place.engine import BatchReport, Engine

if TYPE_CHECKING:
    from meander.coordinator.core.core import Core


@dataclass(frozen=True, slots=True)
class Trial:
    """What events would do."""

    catalog: Catalog
    """As it would be."""
    deployment: Deployment
    """As it is; a copy."""
    report: BatchReport
    change: DeploymentChange


def try_events(loop: PlacementLoop, events: Sequence[ChangeEvent]) -> Trial:
    """Places what the events make invalid, on a copy."""
    engine, deployer = loop.engine, loop.deployer
    running = (engine.catalog, engine.log, engine.mechanism, engine.escalation, deployer.deployment)
    former: dict[int, Any] = {id(engine.catalog.plan.former): {}}  # what runs is not needed, and not to be copied
    catalog, log, mechanism, escalation, deployment = deepcopy(running, former)
    trial = Engine(catalog, mechanism, seed=engine.seed + engine.batches)
    trial.log, trial.applicator, trial.escalation = log, Applicator(catalog, log), escalation
    report = trial.run(events)
    held, apart = dict(deployer.placed.held), dict(deployer.placed.apart)
    placed = Placed(catalog.plan, catalog.placement, catalog.topology, held, apart)
    return Trial(catalog, deployment, report, redeploy(placed, deployment, report.difference.operators))


def try_changes(core: Core, changes: Changes) -> dict[str, Any]:
    """Moves, with their causes, and fragments that would change."""
    read_model = core.publisher.read_model
    trial = try_events(core.loop, changes.events)
    report, change, name = trial.report, trial.change, trial.catalog.topology.name
    moves = []
    for move in report.moves:
        queries = read_model.queries_of(move.operator)
        moves.append(
            {
                "operator": int(move.operator),
                "query": queries[0] if queries else None,
                "queries": queries,
                "from": None if move.source is None else name(move.source),
                "to": None if move.target is None else name(move.target),
                "cause": move.cause,
            }
        )
    return {
        "batch": None,
        "moves": moves,
        "fragments": len(change.fragments),
        "rerouted": len(report.rerouted),
        "reroutes": report.reroutes,
        "unplaced": {str(o): reason for o, reason in report.unplaced.items()},
    }
