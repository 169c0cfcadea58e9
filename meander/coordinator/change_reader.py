"""The reader of changes over HTTP: JSON values are checked and made into change events, before they reach the core."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from meander.coordinator.ledger.query_texts import planned
from meander.coordinator.request_values import check_plain_name, check_text, check_value
from meander.lang.event_file import dump_events, read_events
from meander.lang.limits import READ_S, within
from meander.model.errors import InputError
from meander.model.events import ChangeEvent, QueryAdded
from meander.model.expressions.allowed_functions import ANY, AllowedFunctions
from meander.model.ids import QueryId
from meander.model.operators import UserFunction
from meander.model.plan import Query
from meander.model.streams import SinkTarget, Stream

MOST_EVENTS = 2_000


@dataclass(frozen=True, slots=True)
class Changes:
    """Events that belong together, with their records for the ledger."""

    events: tuple[ChangeEvent, ...]
    values: tuple[dict[str, Any], ...]
    """The events as JSON values."""
    texts: Mapping[QueryId, str] = field(default_factory=dict)
    """The texts of queries that are added."""


@dataclass(frozen=True, slots=True)
class ChangeReader:
    """Reads changes over the streams and sinks of one topology; from any thread."""

    streams: Mapping[str, Stream]
    sinks: Mapping[str, SinkTarget]
    functions: AllowedFunctions = ANY

    def query(self, text: str, name: str) -> Query:
        """The query that a text describes; it is called `name` unless the text says otherwise."""
        check_text(text, "the query")
        try:
            with within(READ_S):
                found = planned(QueryId(name), text, self.streams, self.sinks)
        except (RecursionError, OverflowError):
            raise InputError(
                "the query is nested too deeply, or a number in it is too large; split it into several queries"
            ) from None
        check_plain_name(found.id, "the query's name")
        for operator in found.plan.operators.values():
            if isinstance(operator, UserFunction):
                self.functions.check(operator.function)
        return found

    def read(self, values: Sequence[Mapping[str, Any] | ChangeEvent]) -> Changes:
        """Checks events one by one; those without a time happen when the one before does."""
        if len(values) > MOST_EVENTS:
            raise InputError(f"{len(values)} events at once are too many; send at most {MOST_EVENTS}")
        texts: dict[QueryId, str] = {}
        plain = [v if isinstance(v, Mapping) else _plain(v) for v in values]
        checked = [_checked(value, number) for number, value in enumerate(plain, 1)]
        at_ms = 0
        for value in checked:
            at_ms = value.setdefault("at_ms", at_ms)

        def plan(name: QueryId, text: str) -> Query:
            query = self.query(text, name)
            texts[name] = text
            return replace(query, id=name)

        events = read_events("\n".join(map(json.dumps, checked)), "events", plan)
        return Changes(tuple(events), tuple(checked), texts)


def _plain(event: ChangeEvent) -> dict[str, Any]:
    if isinstance(event, QueryAdded):
        raise InputError("submit a query by its text, not as an event")
    found: dict[str, Any] = json.loads(next(iter(dump_events([event]))))
    return found


def _checked(value: Mapping[str, Any], number: int) -> dict[str, Any]:
    """A copy without anything that could not be kept or compared later."""
    where = f"events, line {number}"
    if "file" in value:
        raise InputError("queries are given by their text here; write sql instead of file", where)
    for key, entry in value.items():
        try:
            check_value(key, entry)
        except InputError as error:
            raise error.at(where) from None
    return dict(value)
