"""Nodes of sites that are gone, played by the keepers of their replicas: there again, beside a node of the keeper."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from concurrent.futures import TimeoutError as NotInTime
from http import HTTPStatus

from meander.coordinator.core.commands import ANSWER_S, Answer, CoreTask
from meander.coordinator.core.core import Core
from meander.coordinator.membership.members import Membership
from meander.coordinator.replicas.assignment import node_of
from meander.coordinator.replicas.keeper_records import ReplicaLedger
from meander.model.errors import InputError

_log = logging.getLogger(__name__)


class PlayedNodes:
    """Brings them into the topology, and takes them out again."""

    def __init__(self, membership: Membership, ledger: ReplicaLedger) -> None:
        self._membership, self._events = membership, membership.events
        self._events.played = frozenset(node for record in ledger.all().values() for node in record.nodes)

    def play(self, core: Core, site: str, keeper: str, nodes: Sequence[str]) -> None:
        """Nodes of a site are there; those that it has given up meanwhile are not."""
        claims = self._membership.roster.claims
        mine = [node for node in nodes if claims.get(node) == site]

        def beside(core: Core) -> Answer:
            return HTTPStatus.OK, node_of(core.loop.catalog.topology, keeper, claims, self._events.played)

        try:
            node = core.ask(CoreTask(beside)).result(ANSWER_S)[1]
            if mine and node is not None:
                self._events.play(core, mine, node).result(ANSWER_S)
        except (InputError, NotInTime) as error:
            _log.warning("%s of site %s cannot be there beside %s: %s", ", ".join(mine), site, keeper, error)

    def end_play(self, core: Core, nodes: Sequence[str]) -> None:
        """They are gone again."""
        try:
            self._events.end_play(core, nodes).result(ANSWER_S)
        except (InputError, NotInTime) as error:
            _log.warning("%s could not be taken out of the topology: %s", ", ".join(nodes), error)
