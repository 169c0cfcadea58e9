"""The comparison of what runs with the catalog: catalog, deployment, and what hosts should have."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from meander.coordinator.loop.loop import PlacementLoop
from meander.model.ids import ChannelId, FragmentId
from meander.place.validate import validate as validate_catalog
from meander.reconfigure.validate import Expected, expected
from meander.reconfigure.validate import validate as validate_host
from meander.run.reporting.inventory import take_inventory


def faults_of(loop: PlacementLoop, delivering: Iterable[ChannelId] = ()) -> list[str]:
    """The differences between the own host and the catalog; empty when they agree.

    Changes in flight are left out. `delivering` are results of stopped queries that are still being delivered.
    """
    found = [f"catalog: {fault}" for fault in validate_catalog(loop.catalog)]
    found += [f"deployment: {fault}" for fault in loop.deployer.validate()]
    here = expected_at(loop, loop.driver.runs_here, delivering)
    inventory = take_inventory(loop.host.store, loop.host.routing)
    return found + [f"host: {fault}" for fault in validate_host(here, inventory)]


def expected_at(
    loop: PlacementLoop, runs_here: Callable[[FragmentId], bool], delivering: Iterable[ChannelId] = ()
) -> Expected:
    """The expected inventory of a host that runs these fragments."""
    deployment, under_way = loop.deployer.deployment, loop.deployer.under_way.values()
    here = [f for f in deployment.fragments if runs_here(f)]
    return expected(loop.catalog.plan, deployment, here, [r.change for r in under_way], delivering)
