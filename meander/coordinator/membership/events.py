"""Membership events: what becomes of the topology when sites join, leave, drain or are not heard of.

They are change events like any other. Those that wait at the same time are decided on together by the core's thread,
which alone knows what the topology is at that moment; one that cannot be carried out is refused on its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

from meander.coordinator.change_reader import ChangeReader
from meander.coordinator.core.commands import Answer, Command, CommandKind, CoreTask, Response
from meander.coordinator.core.core import Core
from meander.coordinator.membership.store import MembershipStore
from meander.coordinator.membership.topology_projection import TopologyProjection, Value
from meander.model.errors import InputError
from meander.model.locks import lock

Done = Future[None]


@dataclass(slots=True, eq=False)
class _Change:
    """The change of the topology that a site asks for."""

    events: Callable[[TopologyProjection], list[Value]]
    done: Done = field(default_factory=Future)


class MembershipEvents:
    """For one coordinator, from any thread."""

    def __init__(self, store: MembershipStore, reader: ChangeReader) -> None:
        self._store, self._reader = store, reader
        self._lock = lock("membership events")
        self._waiting: list[_Change] = []
        self.played: frozenset[str] = frozenset()
        """Nodes whose sites are gone and that others play."""

    def come(self, core: Core, nodes: Sequence[Mapping[str, Any]]) -> Done:
        """Nodes are there from now on: new ones with their descriptions, others as they were."""
        return self._ask(core, lambda projection: projection.come(nodes))

    def go(self, core: Core, nodes: Sequence[str]) -> Done:
        """Nodes are gone with their links, which are remembered."""
        return self._ask(core, lambda projection: projection.go(nodes))

    def drain(self, core: Core, nodes: Sequence[str]) -> Done:
        """Nodes take no operators any more; those that can go elsewhere do."""
        return self._ask(core, lambda projection: projection.drain(nodes))

    def play(self, core: Core, nodes: Sequence[str], beside: str) -> Done:
        """Nodes whose site is gone are there beside one of the site that plays them."""
        self.played |= set(nodes)
        return self._ask(core, lambda projection: projection.play(nodes, beside))

    def end_play(self, core: Core, nodes: Sequence[str]) -> Done:
        """Nodes that were played are gone, until their site comes back."""
        gone = self._ask(core, lambda projection: projection.go(nodes))
        gone.add_done_callback(lambda done: self._end_play(nodes))
        return gone

    def _end_play(self, nodes: Sequence[str]) -> None:
        self.played -= set(nodes)

    def _ask(self, core: Core, events: Callable[[TopologyProjection], list[Value]]) -> Done:
        change = _Change(events)
        with self._lock:
            first = not self._waiting
            self._waiting.append(change)
        if first:
            change_topology = CoreTask(self._decide)
            change_topology.answer.add_done_callback(self._ended)
            core.ask(change_topology)
        return change.done

    def _ended(self, answer: Future[Answer]) -> None:
        """Answers requests that were left open because the core stopped or failed."""
        error = answer.exception()
        if error is not None:
            for change in self._take():
                change.done.set_exception(error)

    def _take(self) -> list[_Change]:
        with self._lock:
            found, self._waiting = self._waiting, []
        return found

    def _decide(self, core: Core) -> Answer:
        """In the core's thread."""
        changes = self._take()
        try:
            self._carry_out(core, changes)
        except BaseException as error:
            for change in changes:
                if not change.done.done():
                    change.done.set_exception(error)
            raise
        return HTTPStatus.OK, None

    def _carry_out(self, core: Core, changes: Sequence[_Change]) -> None:
        projection = TopologyProjection(core.loop.catalog.topology, self._store, self.played)
        commands: list[tuple[_Change, Command]] = []
        for change in changes:
            try:
                events = change.events(projection)
                if events:
                    commands.append((change, Command(self._reader.read(events), Response(CommandKind.BATCH))))
                else:
                    change.done.set_result(None)
            except InputError as error:
                change.done.set_exception(error)
        projection.before()
        core.take([command for _, command in commands])
        projection.after()
        for change, command in commands:
            refused = command.answer.exception()
            change.done.set_exception(refused) if refused is not None else change.done.set_result(None)
