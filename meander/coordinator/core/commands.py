"""Commands: the requests of clients to the decision core, and the forms of their answers."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from enum import StrEnum
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from meander.coordinator.change_reader import Changes
from meander.coordinator.loop.applied import Applied

if TYPE_CHECKING:
    from meander.coordinator.core.core import Core

Json = dict[str, Any]
Answer = tuple[int, Any]
"""An HTTP status and a JSON value."""
ANSWER_S = 60.0
"""A client waits so long at most for the answer to a command."""


@dataclass(frozen=True, slots=True)
class Key:
    """The identity of a request: two requests with the same key are one."""

    key: str
    fingerprint: str


@dataclass(frozen=True, slots=True)
class CommandBatch:
    """The result of a batch of changes."""

    number: int
    applied: Applied
    moves: list[Json]
    fragments: int

    def as_json(self) -> Json:
        report = self.applied.report
        return {
            "batch": self.number,
            "moves": self.moves,
            "fragments": self.fragments,
            "rerouted": len(report.rerouted),
            "reroutes": report.reroutes,
            "unplaced": {str(o): reason for o, reason in report.unplaced.items()},
        }

    def in_numbers(self) -> Json:
        """The figures that the ledger keeps of it."""
        report = self.applied.report
        counts = {"moves": len(self.moves), "rerouted": len(report.rerouted), "unplaced": len(report.unplaced)}
        return counts | {"fragments": self.fragments}


class CommandKind(StrEnum):
    """The subject of an answer."""

    BATCH = "batch"
    MOVE = "move"
    SUBMITTED = "submitted"
    STOPPED = "stopped"
    DEMANDS = "demands"


@dataclass(frozen=True, slots=True)
class Response:
    """The form of a command's answer. It is written down with the command, so that another process can give the
    answer."""

    kind: CommandKind
    query: str = ""

    def as_json(self) -> Json:
        return {"kind": self.kind.value, "query": self.query}

    @staticmethod
    def of_json(value: Json) -> Response:
        return Response(CommandKind(value["kind"]), value["query"])

    def answer(self, core: Core, batch: CommandBatch) -> Answer:
        match self.kind:
            case CommandKind.BATCH:
                return HTTPStatus.OK, batch.as_json()
            case CommandKind.MOVE:
                return HTTPStatus.ACCEPTED, batch.as_json()
            case CommandKind.SUBMITTED:
                return HTTPStatus.CREATED, core.publisher.query(self.query)
            case CommandKind.STOPPED:
                return HTTPStatus.ACCEPTED, {"id": self.query, "status": "stopping"}
            case CommandKind.DEMANDS:
                return HTTPStatus.OK, core.publisher.query(self.query)


@dataclass(slots=True, eq=False)
class Command:
    """Changes that a client wants."""

    changes: Changes
    response: Response
    check: Callable[[Core], None] | None = None
    """Raises when the changes do not make sense now."""
    key: Key | None = None
    answer: Future[Answer] = field(default_factory=Future)


@dataclass(slots=True, eq=False)
class CoreTask:
    """Something for the core's thread to do that is no change event."""

    run: Callable[[Core], Answer]
    key: Key | None = None
    answer: Future[Answer] = field(default_factory=Future)
