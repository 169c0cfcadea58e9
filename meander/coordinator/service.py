"""The service: all requests to a coordinator, over HTTP or from Python."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from http import HTTPStatus
from importlib.metadata import version
from typing import Any

from meander.adapt.decisions import Decision, DecisionAction, Transition, Trigger
from meander.adapt.foresight import Refusal
from meander.coordinator.adaptation.transitions import Transitions
from meander.coordinator.change_reader import ChangeReader, Changes, check_name
from meander.coordinator.condition.condition import (
    Condition,
    ServiceCondition,
    ServiceFacts,
    conditions,
    service_condition,
    without_numbers,
)
from meander.coordinator.core.commands import Answer, Command, CommandKind, CoreTask, Key, Response
from meander.coordinator.core.core import Core
from meander.coordinator.doctor import Examination, Inventories, diagnose, examine
from meander.coordinator.dry_run import try_changes
from meander.coordinator.ledger.departed import forgetting, restoring
from meander.coordinator.ledger.history import EventHistory
from meander.coordinator.membership.auditor import Auditor
from meander.coordinator.membership.members import Membership
from meander.coordinator.membership.refusals import SiteRefusedError
from meander.coordinator.membership.store import ANONYMOUS
from meander.coordinator.problems import ServiceRefusedError, conflict, not_found
from meander.coordinator.read_model.hub import Hub
from meander.coordinator.read_model.read_model import PlacementViews
from meander.coordinator.security.tokens import Tokens
from meander.lang.demands import parse_demands
from meander.membership.protocol import Code
from meander.model.demands import check_consistent
from meander.model.errors import InputError, unknown
from meander.model.events import ChangeEvent, DemandChanged, PlacementChanged, QueryAdded, QueryRemoved
from meander.model.ids import OperatorId, QueryId
from meander.model.locks import lock
from meander.model.plan import Query
from meander.place.mechanisms import MECHANISMS
from meander.run.channels.flight.proof import HOME
from meander.run.resuming import resume

ANSWER_S = 60.0
POSITIONS_S = 0.2
"""Positions go out at most so often."""
DEFAULT_PROTOCOL = "mfgs_concurrent"


ResumeElsewhere = Callable[[str | None, Sequence[OperatorId]], Mapping[str, list[str] | str]]


class Service:
    """Answers from the read model; passes commands on to the core once it is there."""

    def __init__(
        self,
        hub: Hub,
        tokens: Tokens,
        reader: ChangeReader,
        samples: Sequence[tuple[str, str]] = (),
        adapts: bool = True,
    ) -> None:
        self.hub, self.tokens, self.reader, self.samples, self.adapts = hub, tokens, reader, tuple(samples), adapts
        self.version = version("meander")
        self._core: Core | None = None
        self._sites: Membership | None = None
        self.auditor: Auditor | None = None
        self._history: EventHistory | None = None
        self._stopping = False
        self.resume_elsewhere: ResumeElsewhere = lambda name, operators: {}
        """Lets sites try paused parts again."""
        self.inventories: Callable[[], Inventories] = dict
        """The inventories of all sites."""
        self._started = time.monotonic()
        self._things: dict[str, dict[str, float]] = {}
        self._told_things = 0.0
        self._told_health: Any = None
        self._numbers = lock("request numbers")
        self._number = 0

    # ---------------------------------------------------------------- life

    def ready(self, core: Core, history: EventHistory) -> None:
        self._core, self._history = core, history
        core.on_measured = self._tell_health
        self._tell_health()

    def has_sites(self, sites: Membership, auditor: Auditor) -> None:
        """Sites can be answered from now on, also before the core is there."""
        self._sites, self.auditor = sites, auditor

    def who(self, token: str | None) -> str:
        """The name of a token's owner, for the audit log."""
        role = self.tokens.role_of(token) if token else None
        if role is not None or token is None or self._sites is None:
            return role.value if role else ANONYMOUS
        found = self._sites.store.pass_of(token)
        return found.site if found else ANONYMOUS

    def stopping(self) -> None:
        self._stopping = True
        self._tell_health()

    def close(self) -> None:
        if self._history is not None:
            self._history.close()

    @property
    def core(self) -> Core:
        if self._sites is not None and self._sites.stepped_down is not None:
            raise ServiceRefusedError(HTTPStatus.SERVICE_UNAVAILABLE, self._sites.stepped_down)
        if self._core is None or self._stopping:
            what = "stopping" if self._stopping else "starting"
            raise ServiceRefusedError(
                HTTPStatus.SERVICE_UNAVAILABLE, f"the coordinator is {what}; try again in a moment"
            )
        return self._core

    @property
    def sites(self) -> Membership:
        if self._sites is None or self._stopping:
            what = "stopping" if self._stopping else "starting"
            raise SiteRefusedError(Code.UNAVAILABLE, f"the coordinator is {what}; try again in a moment")
        return self._sites

    @property
    def history(self) -> EventHistory:
        assert self.core is not None
        assert self._history is not None
        return self._history

    @property
    def views(self) -> PlacementViews:
        return self.core.publisher.read_model.views

    # ---------------------------------------------------------------- looking

    def health(self) -> dict[str, Any]:
        """The health of the service, and its problems."""
        found = self._condition()
        return {
            "status": found.status,
            "problems": list(found.problems),
            "queries": dict(found.queries),
            "version": self.version,
            "uptime_s": round(time.monotonic() - self._started, 1),
            "stages": self._stages(),
        }

    def _stages(self) -> dict[str, Any] | None:
        """The use of Spark by the stages of the coordinator's own host."""
        measured = self._core.publisher.read_model.views.measured if self._core is not None else None
        use = measured.status.stages if measured is not None else None
        return None if use is None else {"stages": dict(use.stages), "refused": dict(use.refused)}

    def _condition(self) -> ServiceCondition:
        core, sites, problems = self._core, self._sites, list[str]()
        queries: dict[str, Condition] = {}
        if core is not None:
            views = core.publisher.read_model.views
            problems += views.measured.status.problems if views.measured else ()
            problems += core.recent_failures()
            queries = conditions(views.queries.values())
        if sites is not None and sites.stepped_down is not None:
            problems.append(sites.stepped_down)
        troubles = sites.troubles() if sites is not None and core is not None else {}
        return service_condition(ServiceFacts(core is not None, self._stopping, tuple(problems), troubles, queries))

    def _tell_health(self) -> None:
        """Publishes the health, when a problem appears or disappears; figures alone are no news."""
        found = self.health()
        words = found["status"], found["queries"], [without_numbers(p) for p in found["problems"]]
        if words != self._told_health:
            self._told_health = words
            self.hub.publish("health", found)

    def query(self, name: str) -> dict[str, Any]:
        """A query with its operators and edges."""
        views = self.views
        if name not in views.queries:
            raise not_found(unknown("query", name, views.queries, "queries"))
        return {**views.queries[name], "dag": views.dag(name)}

    def results(self, name: str, limit: int) -> dict[str, Any]:
        views, tail = self.views, self.core.sink_bindings.tails.get(name)
        if name not in views.queries:
            raise not_found(unknown("query", name, views.queries, "queries"))
        return {"rows": tail.rows(limit) if tail else [], "total": views.queries[name]["results"]}

    def placements(self) -> list[dict[str, Any]]:
        keys = ("label", "kind", "queries", "node", "pinned", "why")
        found = self.views.operators.values()
        return [{"operator": each["id"], **{key: each[key] for key in keys}} for each in found]

    def mechanisms(self) -> list[dict[str, Any]]:
        return [
            {
                "name": m.name,
                "optimises": [metric.value for metric in m.metadata.optimises],
                "needs": {"cost_space": m.metadata.needs_cost_space, "most_operators": m.metadata.most_operators},
                "summary": m.metadata.summary,
            }
            for m in MECHANISMS
        ]

    def streams(self) -> list[dict[str, Any]]:
        return [
            {
                "name": s.name,
                "schema": {f.name: str(f.type) for f in s.schema},
                "event_time": s.event_time,
                "nodes": list(s.nodes),
                "rate_tps": s.rate_tps,
            }
            for s in self.reader.streams.values()
        ]

    def sinks(self) -> list[dict[str, Any]]:
        return [{"name": s.name, "node": s.node} for s in self.reader.sinks.values()]

    def move_things(self, positions: Mapping[str, Mapping[str, float]]) -> None:
        """Publishes the positions of moving things, a few times a second."""
        self._things = {**self._things, **{name: dict(place) for name, place in positions.items()}}
        now = time.monotonic()
        if now - self._told_things >= POSITIONS_S:
            self._told_things = now
            self.hub.publish("positions", self._things)

    @property
    def positions(self) -> dict[str, dict[str, float]]:
        return self._things

    # ---------------------------------------------------------------- changing

    def wait(self, answer: Future[Answer]) -> dict[str, Any]:
        """The body of an answer, for callers that can wait."""
        body: dict[str, Any] = answer.result(ANSWER_S)[1]
        return body

    def change(self, events: Sequence[Mapping[str, Any] | ChangeEvent], key: Key | None = None) -> Future[Answer]:
        return self.core.ask(Command(self.reader.read(events), Response(CommandKind.BATCH), key=key))

    def dry_run(self, events: Sequence[Mapping[str, Any] | ChangeEvent]) -> Future[Answer]:
        """Works out the effect of events, without applying them."""
        changes = self.reader.read(events)
        return self.core.ask(CoreTask(lambda core: (HTTPStatus.OK, try_changes(core, changes))))

    def restore(self, nodes: Sequence[str], key: Key | None = None, *, dry_run: bool = False) -> Future[Answer]:
        """Brings removed nodes back as they were, with the links whose other end is there by then."""

        def run(core: Core) -> Answer:
            self._check_owners(nodes)
            changes = self.reader.read(restoring(core.loop.catalog.topology, core.ledger, nodes))
            if dry_run:
                return HTTPStatus.OK, try_changes(core, changes)
            command = Command(changes, Response(CommandKind.BATCH))
            core.take([command])
            return command.answer.result()

        return self.core.ask(CoreTask(run, key))

    def forget(self, nodes: Sequence[str], key: Key | None = None) -> Future[Answer]:
        """Removed nodes are not wanted back: their records are dropped."""

        def run(core: Core) -> Answer:
            self._check_owners(nodes)
            topology = core.loop.catalog.topology
            with core.ledger.transaction():
                touched = forgetting(topology, core.ledger, nodes)
            core.publisher.placed((), {topology.known_id(name) for name in touched}, ())
            return HTTPStatus.OK, {"forgotten": list(dict.fromkeys(nodes))}

        return self.core.ask(CoreTask(run, key))

    def _check_owners(self, nodes: Sequence[str]) -> None:
        """Raises for a node that comes back with its site, and only with it."""
        for name in nodes:
            site = self._sites.absent_owner(name) if self._sites is not None else None
            if site is not None:
                raise conflict(
                    f"node {name!r} belongs to site {site!r}, which is away, and comes back with it; "
                    f"`meander site release {site}` takes it from the site"
                )

    def submit(self, text: str, name: str | None, key: Key | None = None) -> Future[Answer]:
        command = submission(self.reader, text, name or self._fresh_name())
        command.key = key
        return self.core.ask(command)

    def _fresh_name(self) -> str:
        taken = self.core.publisher.texts
        with self._numbers:
            while True:
                self._number += 1
                if f"query_{self._number}" not in taken:
                    return f"query_{self._number}"

    def stop(self, query: str, key: Key | None = None) -> Future[Answer]:
        changes = self.reader.read([QueryRemoved(0, QueryId(query))])
        return self.core.ask(Command(changes, Response(CommandKind.STOPPED, query), _has_query(query), key))

    def demand(self, query: str, demands: Sequence[str], key: Key | None = None) -> Future[Answer]:
        found = tuple(d for text in demands for d in parse_demands(text))
        check_consistent(found)
        changes = self.reader.read([DemandChanged(0, QueryId(query), found)])
        return self.core.ask(Command(changes, Response(CommandKind.DEMANDS, query), _has_query(query), key))

    def move(self, operator: int, node: str, key: Key | None = None) -> Future[Answer]:
        """Puts one operator on a node, where it stays."""
        moved = OperatorId(operator)
        changes = self.reader.read([PlacementChanged(0, moved, node)])
        return self.core.ask(Command(changes, Response(CommandKind.MOVE), lambda core: _can_go(core, moved, node), key))

    def release(self, operator: int, key: Key | None = None) -> Future[Answer]:
        """Lets the mechanism of its query place an operator again that was put somewhere by hand."""
        held = OperatorId(operator)
        changes = self.reader.read([PlacementChanged(0, held)])
        return self.core.ask(Command(changes, Response(CommandKind.MOVE), lambda core: _is_held(core, held), key))

    def resume(self, name: str | None = None) -> list[dict[str, Any]]:
        """Tries paused parts again, here and at all sites, or only those of a name."""
        loop = self.core.loop
        plan = loop.catalog.plan
        operators = plan.serving(QueryId(name)) if name is not None and QueryId(name) in plan.queries else []
        here: dict[str, list[str] | str] = {HOME: resume(loop.host, name, operators)}
        found = {**here, **self.resume_elsewhere(name, operators)}
        return [
            {"where": where, "resumed": [], "problem": told} if isinstance(told, str)
            else {"where": where, "resumed": told, "problem": None}
            for where, told in found.items()
        ]  # fmt: skip

    def doctor(self) -> dict[str, Any]:
        """Compares the running fragments, here and at all sites, with the catalog."""

        def once() -> Examination:
            elsewhere = self.inventories()
            answer = self.core.ask(CoreTask(lambda core: (HTTPStatus.OK, examine(core, elsewhere)))).result(ANSWER_S)
            found: Examination = answer[1]
            return found

        return diagnose(once).to_json()

    def switch(self, query: str, mechanism: str, protocol: str | None, key: Key | None = None) -> Future[Answer]:
        """Lets another mechanism place a query, which moves while it runs."""
        return self.core.ask(CoreTask(lambda core: _switch(core, QueryId(query), mechanism, protocol), key))


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


def _has_query(query: str) -> Any:
    def check(core: Core) -> None:
        known = core.loop.catalog.plan.queries
        if QueryId(query) not in known:
            raise not_found(unknown("query", query, known, "queries"))

    return check


def _can_go(core: Core, operator: OperatorId, node: str) -> None:
    """Raises when a node cannot take an operator: it is gone, has no room, or cannot be reached."""
    catalog = core.loop.catalog
    plan, placed = catalog.plan, catalog.placement.nodes
    record = plan.operators.get(operator)
    if record is None:
        raise not_found(InputError(f"no operator {operator}; `meander describe` shows the numbers"))
    try:
        target = catalog.topology.id(node)
    except InputError as error:
        raise not_found(error) from None
    if placed.get(operator) == target:
        return
    if record.slots and not catalog.ledger.fits(target, *record.charge):
        raise conflict(
            f"node {node!r} has no room for operator {operator}; stop something there or choose another node"
        )
    for other in plan.neighbours(operator):
        there = placed.get(other)
        pair = (there, target) if other in record.inputs else (target, there)
        if there is not None and catalog.topology.path(*pair) is None:
            name = catalog.topology.name(there)
            raise conflict(f"there is no way between {node!r} and {name!r}, where operator {other} runs")


def _is_held(core: Core, operator: OperatorId) -> None:
    """Raises when an operator was not placed by hand."""
    record = core.loop.catalog.plan.operators.get(operator)
    if record is None:
        raise not_found(InputError(f"no operator {operator}; `meander describe` shows the numbers"))
    if not record.is_held:
        raise conflict(f"operator {operator} was not moved by hand; there is nothing to release")


def _switch(core: Core, query: QueryId, mechanism: str, protocol: str | None) -> Answer:
    adaptation, now = core.adaptation, core.clock()
    watched = adaptation.mapek.knowledge.queries.get(query)
    if query not in core.loop.catalog.plan.queries or watched is None:
        raise not_found(unknown("query", query, core.loop.catalog.plan.queries, "queries"))
    if mechanism not in adaptation.chosen.library:
        raise unknown("mechanism", mechanism, adaptation.chosen.library)
    usual = adaptation.transitions.protocol
    chosen = usual if protocol is None else Transitions(core.loop, protocol).protocol
    foresight = adaptation.mapek.foresight
    sharing = foresight.sharing(query)
    busy = [q for q in (query, *sharing) if q in adaptation.transitions.under_way]
    if busy or watched.transition is not None:
        raise conflict(f"query {(busy or [query])[0]!r} is in a transition; wait until it has ended")
    forecast = foresight.forecast(query, mechanism)
    if isinstance(forecast, Refusal):
        raise conflict(forecast.reason)
    transition = Transition(query, watched.mechanism, mechanism, dict(forecast.nodes), forecast.moves, sharing)
    adaptation.transitions.protocol = chosen
    try:
        adaptation.transitions.start(transition)
    finally:
        adaptation.transitions.protocol = usual
    watched.transition = transition
    reason = f"it was asked for; {forecast.moves} operators move"
    decision = Decision(
        now, query, Trigger.ASKED, DecisionAction.SWITCH, watched.mechanism, reason, mechanism, transition
    )
    core.batches.follow()
    core.publisher.decisions([decision])
    shown = {"query": query, "from": watched.mechanism, "to": mechanism, "moves": forecast.moves}
    return HTTPStatus.ACCEPTED, {"transition": shown | {"protocol": protocol or DEFAULT_PROTOCOL}}
