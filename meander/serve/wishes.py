"""Wishes: what clients want of the decision core, and how they are answered."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from enum import StrEnum
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from meander.serve.changes import Changes
from meander.serve.loop import Applied

if TYPE_CHECKING:
    from meander.serve.core import Core

Json = dict[str, Any]
Answer = tuple[int, Any]
"""An HTTP status and a JSON value."""


@dataclass(frozen=True, slots=True)
class Key:
    """What makes two requests the same one."""

    key: str
    fingerprint: str


@dataclass(frozen=True, slots=True)
class Batch:
    """What a batch of changes came to."""

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
        """What the ledger keeps of it."""
        report = self.applied.report
        counts = {"moves": len(self.moves), "rerouted": len(report.rerouted), "unplaced": len(report.unplaced)}
        return counts | {"fragments": self.fragments}


class Kind(StrEnum):
    """What an answer is about."""

    BATCH = "batch"
    MOVE = "move"
    SUBMITTED = "submitted"
    STOPPED = "stopped"
    DEMANDS = "demands"


@dataclass(frozen=True, slots=True)
class Form:
    """How a wish is answered. It is written down with the wish, so that another process can give the answer."""

    kind: Kind
    query: str = ""

    def as_json(self) -> Json:
        return {"kind": self.kind.value, "query": self.query}

    @staticmethod
    def of_json(value: Json) -> Form:
        return Form(Kind(value["kind"]), value["query"])

    def answer(self, core: Core, batch: Batch) -> Answer:
        match self.kind:
            case Kind.BATCH:
                return HTTPStatus.OK, batch.as_json()
            case Kind.MOVE:
                return HTTPStatus.ACCEPTED, batch.as_json()
            case Kind.SUBMITTED:
                return HTTPStatus.CREATED, core.teller.query(self.query)
            case Kind.STOPPED:
                return HTTPStatus.ACCEPTED, {"id": self.query, "status": "stopping"}
            case Kind.DEMANDS:
                return HTTPStatus.OK, core.teller.query(self.query)


@dataclass(slots=True, eq=False)
class Wish:
    """Changes that a client wants."""

    changes: Changes
    form: Form
    check: Callable[[Core], None] | None = None
    """Raises when the changes do not make sense now."""
    key: Key | None = None
    answer: Future[Answer] = field(default_factory=Future)


@dataclass(slots=True, eq=False)
class Act:
    """Something for the core's thread to do that is no change event."""

    run: Callable[[Core], Answer]
    key: Key | None = None
    answer: Future[Answer] = field(default_factory=Future)
