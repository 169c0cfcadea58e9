"""Switching a query's mechanism by hand: the same transition as the adaptation loop begins."""

from __future__ import annotations

from http import HTTPStatus

from meander.adapt.decisions import Decision, DecisionAction, Transition, Trigger
from meander.adapt.mechanism_forecasts import Refusal
from meander.coordinator.core.commands import Answer
from meander.coordinator.core.core import Core
from meander.coordinator.problems import conflict, not_found
from meander.deploy.protocols.transitions import TRANSITIONS, transition_protocol
from meander.model.errors import unknown
from meander.model.ids import QueryId
from meander.place.nova.queries.partitioned_queries import NOVA


def switch(core: Core, query: QueryId, mechanism: str, protocol: str | None, *, dry_run: bool = False) -> Answer:
    """Begins a transition of a query to another mechanism, unless it cannot be made now; or only says what it would
    take, by this protocol and by all others."""
    adaptation, now = core.adaptation, core.clock()
    watched = adaptation.mapek.knowledge.queries.get(query)
    if query not in core.loop.catalog.plan.queries or watched is None:
        raise not_found(unknown("query", query, core.loop.catalog.plan.queries, "queries"))
    if NOVA in (mechanism, watched.mechanism) and mechanism != watched.mechanism:
        raise conflict(
            f"query {query!r} cannot go from {watched.mechanism} to {mechanism} while it runs, because Nova decides "
            "which operators there are; stop it and submit it again with --mechanism"
        )
    if mechanism not in adaptation.chosen.library:
        raise unknown("mechanism", mechanism, adaptation.chosen.library)
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
