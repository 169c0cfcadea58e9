"""Switching a query's mechanism by hand: the same transition as the adaptation loop begins."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from http import HTTPStatus

from meander.adapt.decisions import Decision, DecisionAction, Transition, Trigger
from meander.adapt.mechanism_forecasts import Refusal
from meander.adapt.transition_prediction import TransitionPrediction
from meander.coordinator.change_reader import Changes
from meander.coordinator.core.admission import check
from meander.coordinator.core.commands import Answer, Command, CommandKind, Response
from meander.coordinator.core.core import Core
from meander.coordinator.dry_run import try_events
from meander.coordinator.problems import conflict, not_found
from meander.deploy.protocols.sms import complete_from
from meander.deploy.protocols.transitions import TRANSITIONS, transition_protocol
from meander.model.errors import InputError, unknown
from meander.model.events import ChangeEvent, MechanismChanged
from meander.model.ids import QueryId
from meander.place.nova.queries.partitioned_queries import NOVA
from meander.place.nova.queries.shape import PAIRING

Read = Callable[[Sequence[ChangeEvent]], Changes]

PARTS = "parts"
"""The protocol by which queries go to Nova and leave it: no state moves, joins run beside each other for a window."""


def switch(
    core: Core, read: Read, query: QueryId, mechanism: str, protocol: str | None, *, dry_run: bool = False
) -> Answer:
    """Begins a transition of a query to another mechanism, unless it cannot be made now; or only says what it would
    take, by this protocol and by all others."""
    adaptation, now = core.adaptation, core.clock()
    watched = adaptation.mapek.knowledge.queries.get(query)
    if query not in core.loop.catalog.plan.queries or watched is None:
        raise not_found(unknown("query", query, core.loop.catalog.plan.queries, "queries"))
    if mechanism not in (NOVA, *adaptation.chosen.library):
        raise unknown("mechanism", mechanism, [NOVA, *adaptation.chosen.library])
    if NOVA in (mechanism, watched.mechanism):
        return _recut(core, read([MechanismChanged(0, query, mechanism)]), watched.mechanism, dry_run=dry_run)
    chosen = transition_protocol(protocol or adaptation.mapek.policy.of(query).protocol).name
    foresight = adaptation.mapek.foresight
    sharing = foresight.sharing(query)
    busy = [q for q in (query, *sharing) if q in adaptation.transitions.under_way]
    if busy or watched.transition is not None:
        raise conflict(f"query {(busy or [query])[0]!r} is in a transition; wait until it has ended")
    forecast = foresight.forecast(query, mechanism)
    if isinstance(forecast, Refusal):
        raise conflict(forecast.reason)
    foresee = adaptation.transitions.predictor.foresee
    shown = {"query": query, "from": watched.mechanism, "to": mechanism, "moves": forecast.moves, "protocol": chosen}
    prediction = foresee(chosen, forecast.nodes)
    if dry_run:
        others = [foresee(p.name, forecast.nodes).as_json(with_operators=False) for p in TRANSITIONS]
        return HTTPStatus.OK, {"transition": shown, "predicted": prediction.as_json(), "protocols": others}
    transition = Transition(query, watched.mechanism, mechanism, dict(forecast.nodes), forecast.moves, sharing, chosen)
    adaptation.transitions.start(transition)
    watched.transition, watched.hopes = transition, "it was asked for"
    decision = Decision(
        now,
        query,
        Trigger.ASKED,
        DecisionAction.SWITCH,
        watched.mechanism,
        f"it was asked for; {forecast.moves} operators move",
        mechanism,
        transition,
        predicted=prediction.as_json(),
    )
    core.batches.follow()
    core.publisher.decisions([decision])
    return HTTPStatus.ACCEPTED, {"transition": shown, "predicted": prediction.as_json()}


def _recut(core: Core, changes: Changes, source: str, *, dry_run: bool) -> Answer:
    """Lets Nova cut a query's join that runs, or lets another mechanism place it whole."""
    (event,) = changes.events
    assert isinstance(event, MechanismChanged)
    command = Command(changes, Response(CommandKind.BATCH))
    try:
        check(core, command, ())
    except InputError as error:
        raise conflict(str(error)) from None
    plan, query, target = core.loop.catalog.plan, event.query, event.mechanism
    moves = len(try_events(core.loop, changes.events).report.moves)
    joins = (plan[o].spec for o in plan.serving(query) if isinstance(plan[o].spec, PAIRING))
    seconds = max((complete_from(join, 0) or 0) / 1000 for join in joins)
    predicted = TransitionPrediction(PARTS, seconds, 0, overlap_s=seconds).as_json()
    shown = {"query": query, "from": source, "to": target, "moves": moves, "protocol": PARTS}
    if dry_run:
        return HTTPStatus.OK, {"transition": shown, "predicted": predicted, "protocols": [predicted]}
    core.take([command])
    command.answer.result(0)
    reason = f"it was asked for; the former join ends when its windows have run out, in about {seconds:.2g} s"
    decision = Decision(
        core.clock(), query, Trigger.ASKED, DecisionAction.SWITCH, source, reason, target, predicted=predicted
    )
    core.publisher.decisions([decision])
    return HTTPStatus.ACCEPTED, {"transition": shown, "predicted": predicted}
