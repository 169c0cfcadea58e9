"""Admission of commands: those that can be carried out one after the other become a batch, the others are refused, each
with its own reason. Nothing is changed by looking.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from meander.adapt.setting_layers import checked
from meander.coordinator.adaptation.first_mechanisms import first_settings
from meander.coordinator.core.commands import Command
from meander.model.errors import InputError, unknown
from meander.model.events import ChangeEvent, JoinMatrixChanged, MechanismChanged, QueryAdded, QueryRemoved
from meander.place.admission import admit
from meander.place.catalog import Catalog
from meander.place.nova.queries.partitioned_queries import NOVA, refusal
from meander.place.nova.queries.settings import MECHANISM

if TYPE_CHECKING:
    from meander.coordinator.core.core import Core


def admitted(core: Core, commands: Sequence[Command]) -> list[Command]:
    """The commands that can be carried out; the others are answered with the reason why not."""
    for command in commands:
        choose_mechanisms(core, command)
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
    slow = (QueryAdded, QueryRemoved, JoinMatrixChanged, MechanismChanged)
    if any(w.check for w in commands) or any(isinstance(e, slow) for e in events):
        return False
    return _fits(catalog, events)


def check(core: Core, command: Command, before: Sequence[ChangeEvent]) -> None:
    """Raises when a command cannot be carried out after these events."""
    if command.check is not None:
        command.check(core)
    catalog, events = core.loop.catalog, command.changes.events
    added = [e.query for e in events if isinstance(e, QueryAdded)]
    core.loop.engine.parted.admit(events)
    for event in events:
        if isinstance(event, QueryAdded):
            _check_mechanism(core, event)
        elif isinstance(event, MechanismChanged):
            _check_change(core, event)
    if not before:
        admit(catalog, events)
    elif not _fits(catalog, [*before, *events]):  # alone, so that the error counts its own events
        admit(catalog, events)
        admit(catalog, [*before, *events])
    for query in added:
        core.sink_bindings.prepare(query)


def choose_mechanisms(core: Core, command: Command) -> None:
    """Lets Nova place queries that are to begin with it. Where it is only the usual choice and cannot place one, the
    reason is remembered, and the query begins as if nothing was named."""
    changes = command.changes
    events: list[ChangeEvent] = []
    values: list[dict[str, Any]] = []
    for event, value in zip(changes.events, changes.values, strict=True):
        if isinstance(event, QueryAdded) and not event.mechanism and _is_for_nova(core, event):
            event, value = replace(event, mechanism=NOVA), value | {"mechanism": NOVA}
        events.append(event)
        values.append(value)
    command.changes = replace(changes, events=tuple(events), values=tuple(values))


def _is_for_nova(core: Core, event: QueryAdded) -> bool:
    policy, query = core.adaptation.policy, event.query.id
    if first_settings(policy, event.query).first != NOVA:
        return False
    named = "first" in policy.changed.get(query, {}) or "first" in policy.of_queries.get(query, {})
    named = named or MECHANISM in dict(event.query.options)
    reason = None if named else refusal(core.loop.engine.parted, event.query)
    if reason is not None:
        core.adaptation.first.refused[query] = f"Nova cannot place it: {reason}"
    return reason is None


def _check_mechanism(core: Core, event: QueryAdded) -> None:
    """Raises when Nova is to place a query and cannot."""
    core.loop.engine.parted.settings.with_options(event.query.options)
    named = dict(event.query.options).get(MECHANISM)
    if named is not None:
        checked({"first": named})
    if event.mechanism == NOVA:
        core.loop.engine.parted.check(event.query)
    elif event.mechanism:
        raise InputError(f"mechanism {event.mechanism!r} cannot be named here, only {NOVA}; submit the query instead")
    else:
        core.loop.engine.applicator.preparation.prepare(event.query)


def _check_change(core: Core, event: MechanismChanged) -> None:
    """Raises when a query cannot go to Nova or leave it now."""
    library = core.adaptation.chosen.library
    if event.mechanism != NOVA and event.mechanism not in library:
        raise unknown("mechanism", event.mechanism, [NOVA, *library])
    if event.query in core.adaptation.transitions.under_way:
        raise InputError(f"query {event.query!r} is in a transition; wait until it has ended")


def _fits(catalog: Catalog, events: Sequence[ChangeEvent]) -> bool:
    try:
        admit(catalog, events)
    except InputError:
        return False
    return True
