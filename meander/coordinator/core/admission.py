"""Admission of commands: those that can be carried out one after the other become a batch, the others are refused, each
with its own reason. Nothing is changed by looking.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from meander.coordinator.core.commands import Command
from meander.model.errors import InputError
from meander.model.events import ChangeEvent, QueryAdded, QueryRemoved
from meander.place.admission import admit
from meander.place.catalog import Catalog

if TYPE_CHECKING:
    from meander.coordinator.core.core import Core


def admitted(core: Core, commands: Sequence[Command]) -> list[Command]:
    """The commands that can be carried out; the others are answered with the reason why not."""
    if _all_fit(core.loop.catalog, commands):
        return list(commands)
    good: list[Command] = []
    events: list[ChangeEvent] = []
    for command in commands:
        try:
            check(core, command, events)
        except InputError as error:
            core.publisher.totals.refused += 1
            command.answer.set_exception(error)
        else:
            good.append(command)
            events += command.changes.events
    return good


def _all_fit(catalog: Catalog, commands: Sequence[Command]) -> bool:
    """Whether several simple commands can be carried out together: the usual case, looked at once."""
    events = [e for w in commands for e in w.changes.events]
    if any(w.check for w in commands) or any(isinstance(e, QueryAdded | QueryRemoved) for e in events):
        return False
    return _fits(catalog, events)


def check(core: Core, command: Command, before: Sequence[ChangeEvent]) -> None:
    """Raises when a command cannot be carried out after these events."""
    if command.check is not None:
        command.check(core)
    catalog, events = core.loop.catalog, command.changes.events
    added = [e.query for e in events if isinstance(e, QueryAdded)]
    for query in added:
        core.loop.engine.applicator.preparation.prepare(query)
    if not before:
        admit(catalog, events)
    elif not _fits(catalog, [*before, *events]):  # alone, so that the error counts its own events
        admit(catalog, events)
        admit(catalog, [*before, *events])
    for query in added:
        core.sink_bindings.prepare(query)


def _fits(catalog: Catalog, events: Sequence[ChangeEvent]) -> bool:
    try:
        admit(catalog, events)
    except InputError:
        return False
    return True
