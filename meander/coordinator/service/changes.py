"""Requests for changes: each becomes a command, whose answer comes when the core has carried it out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from meander.coordinator.core.commands import ANSWER_S, Answer, Command, CommandKind, CoreTask, Key, Response
from meander.coordinator.core.core import Core
from meander.coordinator.ledger.removed_nodes import forgetting, restoring
from meander.coordinator.problems import conflict
from meander.coordinator.service.checks import can_go, has_query, is_held, matrix_of
from meander.coordinator.service.dry_run_report import try_changes
from meander.coordinator.service.submission import submission, with_settings
from meander.coordinator.service.switching import switch
from meander.lang.demands import parse_demands
from meander.model.demands import check_consistent
from meander.model.events import ChangeEvent, DemandChanged, JoinMatrixChanged, PlacementChanged, QueryRemoved
from meander.model.ids import OperatorId, QueryId
from meander.model.locks import lock

if TYPE_CHECKING:
    from meander.coordinator.service.service import Service


class ChangeRequests:
    """Change requests, from any thread."""

    def __init__(self, service: Service) -> None:
        self._service, self._reader = service, service.reader
        self._numbers = lock("request numbers")
        self._number = 0

    def apply(self, events: Sequence[Mapping[str, Any] | ChangeEvent], key: Key | None = None) -> Future[Answer]:
        return self._ask(Command(self._reader.read(events), Response(CommandKind.BATCH), key=key))

    def dry_run(self, events: Sequence[Mapping[str, Any] | ChangeEvent]) -> Future[Answer]:
        """Works out the effect of events, without applying them."""
        changes = self._reader.read(events)
        return self._ask(CoreTask(lambda core: (HTTPStatus.OK, try_changes(core, changes))))

    def restore(self, nodes: Sequence[str], key: Key | None = None, *, dry_run: bool = False) -> Future[Answer]:
        """Brings removed nodes back as they were, with the links whose other end is there by then."""

        def run(core: Core) -> Answer:
            self._check_owners(nodes)
            changes = self._reader.read(restoring(core.loop.catalog.topology, core.ledger.away_links, nodes))
            if dry_run:
                return HTTPStatus.OK, try_changes(core, changes)
            command = Command(changes, Response(CommandKind.BATCH))
            core.take([command])
            return command.answer.result()

        return self._ask(CoreTask(run, key))

    def forget(self, nodes: Sequence[str], key: Key | None = None) -> Future[Answer]:
        """Removed nodes are not wanted back: their records are dropped."""

        def run(core: Core) -> Answer:
            self._check_owners(nodes)
            topology = core.loop.catalog.topology
            with core.ledger.transaction():
                touched = forgetting(topology, core.ledger.away_links, nodes)
            core.publisher.placed((), {topology.known_id(name) for name in touched}, ())
            return HTTPStatus.OK, {"forgotten": list(dict.fromkeys(nodes))}

        return self._ask(CoreTask(run, key))

    def _check_owners(self, nodes: Sequence[str]) -> None:
        """Raises for a node that comes back with its site, and only with it."""
        for name in nodes:
            site = self._service.absent_owner(name)
            if site is not None:
                raise conflict(
                    f"node {name!r} belongs to site {site!r}, which is away, and comes back with it; "
                    f"`meander site release {site}` takes it from the site"
                )

    def submit(
        self, text: str, name: str | None, key: Key | None = None, adaptation: Mapping[str, Any] | None = None
    ) -> Future[Answer]:
        """Adds a query, with adaptation settings of its own if there are some."""
        command = submission(self._reader, text, name or self._fresh_name())
        if adaptation:
            return self._ask(with_settings(command, adaptation, key))
        command.key = key
        return self._ask(command)

    def _fresh_name(self) -> str:
        taken = self._service.core.publisher.texts
        with self._numbers:
            while True:
                self._number += 1
                if f"query_{self._number}" not in taken:
                    return f"query_{self._number}"

    def stop(self, query: str, key: Key | None = None) -> Future[Answer]:
        changes = self._reader.read([QueryRemoved(0, QueryId(query))])
        return self._ask(Command(changes, Response(CommandKind.STOPPED, query), has_query(query), key))

    def demand(self, query: str, demands: Sequence[str], key: Key | None = None) -> Future[Answer]:
        found = tuple(d for text in demands for d in parse_demands(text))
        check_consistent(found)
        changes = self._reader.read([DemandChanged(0, QueryId(query), found)])
        return self._ask(Command(changes, Response(CommandKind.DEMANDS, query), has_query(query), key))

    def join_matrix(
        self, query: str, pairs: Sequence[tuple[str, str]] | None = None, key: Key | None = None
    ) -> Future[Answer]:
        """The producers that join in a query that Nova places; with `pairs`, these from now on."""
        name = QueryId(query)
        if pairs is None:
            return self._ask(CoreTask(lambda core: (HTTPStatus.OK, matrix_of(core, name))))
        changes = self._reader.read([JoinMatrixChanged(0, name, tuple(pairs))])
        return self._ask(Command(changes, Response(CommandKind.BATCH, query), has_query(query), key))

    def move(self, operator: int, node: str, key: Key | None = None) -> Future[Answer]:
        """Puts one operator on a node, where it stays."""
        moved = OperatorId(operator)
        changes = self._reader.read([PlacementChanged(0, moved, node)])
        return self._ask(Command(changes, Response(CommandKind.MOVE), lambda core: can_go(core, moved, node), key))

    def release(self, operator: int, key: Key | None = None) -> Future[Answer]:
        """Lets the mechanism of its query place an operator again that was put somewhere by hand."""
        held = OperatorId(operator)
        changes = self._reader.read([PlacementChanged(0, held)])
        return self._ask(Command(changes, Response(CommandKind.MOVE), lambda core: is_held(core, held), key))

    def switch(
        self, query: str, mechanism: str, protocol: str | None, key: Key | None = None, *, dry_run: bool = False
    ) -> Future[Answer]:
        """Lets another mechanism place a query, which moves while it runs; or says what that would take."""
        name, read = QueryId(query), self._reader.read
        return self._ask(CoreTask(lambda core: switch(core, read, name, mechanism, protocol, dry_run=dry_run), key))

    def _ask(self, command: Command | CoreTask) -> Future[Answer]:
        return self._service.core.ask(command)


def body_of(answer: Future[Answer]) -> dict[str, Any]:
    """The body of an answer, for callers that can wait."""
    body: dict[str, Any] = answer.result(ANSWER_S)[1]
    return body
