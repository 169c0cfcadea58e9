"""A dry run: the effect of changes, tried on a copy of the catalog. Nothing that runs is touched.

The copy has the escalation of the engine: its wider tries, and their credit. The deployment is compared with the
same operators held where they are, and kept apart, as in the deployer.
"""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING, Any

from meander.coordinator.change_reader import Changes
from meander.deploy.fragments import Placed, redeploy
from meander.place.applicator import Applicator
from meander.place.engine import Engine

if TYPE_CHECKING:
    from meander.coordinator.core.core import Core


def try_changes(core: Core, changes: Changes) -> dict[str, Any]:
    """Moves, with their causes, and fragments that would change."""
    engine, read_model = core.loop.engine, core.publisher.read_model
    deployer = core.loop.deployer
    running = (engine.parted, engine.catalog, engine.mechanism, engine.escalation, deployer.deployment)
    former: dict[int, Any] = {id(engine.catalog.plan.former): {}}  # what runs is not needed, and not to be copied
    former |= {id(told): told for told in (engine.parted.has_run, engine.parted.spent)}
    parted, catalog, mechanism, escalation, deployment = deepcopy(running, former)
    applicator = Applicator(catalog, parted.log)
    applicator.parted = parted
    trial = Engine(catalog, mechanism, seed=engine.seed + engine.batches, applicator=applicator)
    trial.escalation = escalation
    report = trial.run(changes.events)
    held, apart = dict(deployer.placed.held), dict(deployer.placed.apart)
    placed = Placed(catalog.plan, catalog.placement, catalog.topology, held, apart)
    change = redeploy(placed, deployment, report.difference.operators)
    name = catalog.topology.name
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
