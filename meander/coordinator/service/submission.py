"""The submission of a query: a command made from its text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from meander.adapt.setting_layers import checked
from meander.coordinator.change_reader import ChangeReader, Changes
from meander.coordinator.core.commands import Answer, Command, CommandKind, CoreTask, Key, Response
from meander.coordinator.core.core import Core
from meander.coordinator.problems import conflict
from meander.coordinator.request_values import check_name
from meander.model.events import QueryAdded


def submission(reader: ChangeReader, text: str, name: str) -> Command:
    """The command to add a query. A name that the text gives wins."""
    check_name(name, "the query's name")
    query = reader.query(text, name)
    value = {"at_ms": 0, "event": "query_added", "query": query.id, "sql": text}
    changes = Changes((QueryAdded(0, query),), (value,), {query.id: text})

    def check(core: Core) -> None:
        if query.id in core.publisher.texts:
            raise conflict(f"query {query.id!r} exists already; stop it first or choose another name")

    return Command(changes, Response(CommandKind.SUBMITTED, query.id), check)


def with_settings(command: Command, values: Mapping[str, Any], key: Key | None) -> CoreTask:
    """A submission whose query has adaptation settings of its own: they are there before the query is placed."""
    query = command.response.query
    kept = checked(values, query)

    def run(core: Core) -> Answer:
        assert command.check is not None
        command.check(core)
        policy, tables = core.adaptation.policy, core.ledger.queries
        with core.ledger.transaction():
            tables.save_adaptation(query, kept)
        policy.change(query, kept)
        core.take([command])
        if command.answer.exception() is not None:
            policy.forget(query)
            with core.ledger.transaction():
                tables.save_adaptation(query, {})
        return command.answer.result()

    return CoreTask(run, key)
