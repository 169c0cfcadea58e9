"""A dry run of events on a copy of the catalog: where everything would be, and what would change. Nothing that runs is
touched.

The copy has the escalation of the engine: its wider tries, and their credit. The deployment is compared with the
same operators held where they are, and kept apart, as in the deployer.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from meander.coordinator.loop.loop import PlacementLoop
from meander.deploy.fragments import Deployment, DeploymentChange, Placed, redeploy
from meander.model.events import ChangeEvent
from meander.place.applicator import Applicator
from meander.place.catalog import Catalog
from meander.place.engine import BatchReport, Engine


@dataclass(frozen=True, slots=True)
class DryRun:
    """The outcome that events would have."""

    catalog: Catalog
    """As it would be."""
    deployment: Deployment
    """As it is; a copy."""
    report: BatchReport
    change: DeploymentChange


def try_events(loop: PlacementLoop, events: Sequence[ChangeEvent]) -> DryRun:
    """Places what the events make invalid, on a copy."""
    engine, deployer = loop.engine, loop.deployer
    running = (engine.parted, engine.catalog, engine.mechanism, engine.escalation, deployer.deployment)
    former: dict[int, Any] = {id(engine.catalog.plan.former): {}}  # what runs is not needed, and not to be copied
    former |= {id(told): told for told in (engine.parted.has_run, engine.parted.spent)}
    parted, catalog, mechanism, escalation, deployment = deepcopy(running, former)
    applicator = Applicator(catalog, parted.log)
    applicator.parted = parted
    trial = Engine(catalog, mechanism, seed=engine.seed + engine.batches, applicator=applicator)
    trial.escalation = escalation
    report = trial.run(events)
    held, apart = dict(deployer.placed.held), dict(deployer.placed.apart)
    placed = Placed(catalog.plan, catalog.placement, catalog.topology, held, apart)
    return DryRun(catalog, deployment, report, redeploy(placed, deployment, report.difference.operators))
