"""The sites that should keep replicas of others, best first: decided from topology and deployment, in the core's
thread."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import TimeoutError as NotInTime
from http import HTTPStatus

from meander.coordinator.core.commands import ANSWER_S, Answer, CoreTask
from meander.coordinator.core.core import Core
from meander.coordinator.replicas.assignment import senders_to, towards_cloud
from meander.model.errors import InputError
from meander.reconfigure.driver.driver import Driver


def preferences(
    core: Core, driver: Driver, claims: Mapping[str, str], sites: Sequence[str], *, senders: bool
) -> Mapping[str, Sequence[str]]:
    """For each site, those on its way to a cloud, or those that send to it; nothing while the core is busy.

    `claims` are the sites of nodes.
    """

    def found(core: Core) -> Answer:
        loop = core.loop
        liked: dict[str, list[str]] = {}
        for site in sites:
            if senders:
                liked[site] = senders_to(loop.deployer.deployment, site, driver.sites)
            else:
                nodes = [node for node, other in claims.items() if other == site]
                liked[site] = towards_cloud(loop.catalog.topology, nodes, claims)
        return HTTPStatus.OK, liked

    try:
        answer: dict[str, list[str]] = core.ask(CoreTask(found)).result(ANSWER_S)[1]
    except (InputError, NotInTime):
        return {}
    return answer
