"""The service: all requests to a coordinator, over HTTP or from Python."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from importlib.metadata import version
from typing import Any, Protocol

from meander.coordinator.change_reader import ChangeReader
from meander.coordinator.condition.condition import (
    Condition,
    ServiceCondition,
    ServiceFacts,
    conditions,
    service_condition,
    without_numbers,
)
from meander.coordinator.core.commands import ANSWER_S, CoreTask
from meander.coordinator.core.core import Core
from meander.coordinator.doctor import Examination, Inventories, diagnose, examine
from meander.coordinator.ledger.history import EventHistory
from meander.coordinator.membership.auditor import Auditor
from meander.coordinator.membership.members import Membership
from meander.coordinator.membership.refusals import SiteRefusedError
from meander.coordinator.problems import ServiceRefusedError
from meander.coordinator.read_model.hub import Hub
from meander.coordinator.read_model.read_model import PlacementViews
from meander.coordinator.security.authenticator import Authenticator
from meander.coordinator.security.tokens import ANONYMOUS, Tokens
from meander.coordinator.service.changes import ChangeRequests
from meander.coordinator.service.positions import MovingPositions
from meander.membership.protocol import Code
from meander.model.errors import InputError
from meander.model.ids import OperatorId, QueryId
from meander.run.channels.flight.proof import HOME
from meander.run.connectors.http_source import HttpPush
from meander.run.resuming import resume

ResumeElsewhere = Callable[[str | None, Sequence[OperatorId]], Mapping[str, list[str] | str]]


class SiteReplicas(Protocol):
    """The replicas of sites, as the service knows them."""

    def restore(self, site: str, instance: str) -> Mapping[str, Any] | None: ...

    def forget(self, site: str, who: str) -> Mapping[str, Any]: ...

    def shown(self, site: str) -> Mapping[str, Any] | None: ...

    def problems(self) -> Mapping[str, tuple[str, ...]]: ...


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
        self.hub, self.reader, self.samples, self.adapts = hub, reader, tuple(samples), adapts
        self.authenticator = Authenticator(tokens)
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
        self.receivers: Mapping[str, HttpPush] = {}
        """Sources that take rows which are posted here, by stream."""
        self.sending = 0
        """Batches of rows that wait for their commit."""
        self._replicas: SiteReplicas | None = None
        self._started = time.monotonic()
        self.changes, self.positions = ChangeRequests(self), MovingPositions(hub)
        self._told_health: Any = None

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
        identity = self.authenticator.identity_of(token) if token else None
        if identity is not None or token is None or self._sites is None:
            return identity.name if identity else ANONYMOUS
        found = self._sites.store.pass_of(token)
        return found.site if found else ANONYMOUS

    def check_new_user(self, name: str) -> None:
        """Raises for a user's name that a site has: the audit log would not tell them apart."""
        if self._sites is not None and any(given.site == name for given in self._sites.store.passes()):
            raise InputError(f"a site is called {name!r}; choose another name for the user")

    def stopping(self) -> None:
        self._stopping = True
        self._tell_health()

    def close(self) -> None:
        if self._history is not None:
            self._history.close()

    @property
    def core(self) -> Core:
        if self._sites is not None and self._sites.leadership.stepped_down is not None:
            raise ServiceRefusedError(HTTPStatus.SERVICE_UNAVAILABLE, self._sites.leadership.stepped_down)
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

    def has_replicas(self, replicas: SiteReplicas) -> None:
        """Sites have replicas from now on."""
        self._replicas = replicas

    @property
    def replicas(self) -> SiteReplicas:
        if self._replicas is None or self._stopping:
            raise SiteRefusedError(Code.UNAVAILABLE, "the coordinator is starting or stopping; try again in a moment")
        return self._replicas

    def replicas_of(self, site: str) -> Mapping[str, Any] | None:
        """The replicas of a site, if it has any."""
        return None if self._replicas is None else self._replicas.shown(site)

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
        if sites is not None and sites.leadership.stepped_down is not None:
            problems.append(sites.leadership.stepped_down)
        troubles = sites.roster.troubles() if sites is not None and core is not None else {}
        if self._replicas is not None:
            lacking = self._replicas.problems()
            troubles = {s: (*troubles.get(s, ()), *lacking.get(s, ())) for s in sorted({*troubles, *lacking})}
        return service_condition(ServiceFacts(core is not None, self._stopping, tuple(problems), troubles, queries))

    def _tell_health(self) -> None:
        """Publishes the health, when a problem appears or disappears; figures alone are no news."""
        found = self.health()
        words = found["status"], found["queries"], [without_numbers(p) for p in found["problems"]]
        if words != self._told_health:
            self._told_health = words
            self.hub.publish("health", found)

    def absent_owner(self, node: str) -> str | None:
        """The site that a node belongs to, where that site is away."""
        return self._sites.roster.absent_owner(node) if self._sites is not None else None

    # ---------------------------------------------------------------- here and at all sites

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
