"""The submission of a query: a command made from its text."""

from __future__ import annotations

from meander.coordinator.change_reader import ChangeReader, Changes
from meander.coordinator.core.commands import Command, CommandKind, Response
from meander.coordinator.core.core import Core
from meander.coordinator.problems import conflict
from meander.coordinator.values import check_name
from meander.model.events import QueryAdded
from meander.model.plan import Query


def submission(reader: ChangeReader, text: str, name: str) -> Command:
    """The command to add a query. A name that the text gives wins."""
    check_name(name, "the query's name")
    query = reader.query(text, name)
    value = {"at_ms": 0, "event": "query_added", "query": query.id, "sql": text}
    changes = Changes((QueryAdded(0, Query(query.id, query.plan, query.demands)),), (value,), {query.id: text})

    def check(core: Core) -> None:
        if query.id in core.publisher.texts:
            raise conflict(f"query {query.id!r} exists already; stop it first or choose another name")

    return Command(changes, Response(CommandKind.SUBMITTED, query.id), check)
