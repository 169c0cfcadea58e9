"""The service: all requests to a coordinator, over HTTP or from Python."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from http import HTTPStatus
from importlib.metadata import version
from typing import Any

from meander.coordinator.change_reader import ChangeReader
from meander.coordinator.core.core import Core
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
from meander.coordinator.service.health import ServiceHealth, SiteReplicas, StandbyFacts
from meander.coordinator.service.host_requests import HostRequests
from meander.coordinator.service.positions import MovingPositions
from meander.membership.protocol import Code
from meander.model.errors import InputError
from meander.run.connectors.http_source import HttpPush


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
        self.backup: Callable[[], Iterator[bytes]] = lambda: iter(())
        """Gives the bytes of a backup."""
        self.follow: Callable[[Mapping[str, Any]], Iterator[bytes]] = lambda asked: iter(())
        """Gives a standby what it lacks."""
        self.hosts = HostRequests(lambda: self.core)
        self.receivers: Mapping[str, HttpPush] = {}
        """Sources that take rows which are posted here, by stream."""
        self.sending = 0
        """Batches of rows that wait for their commit."""
        self._replicas: SiteReplicas | None = None
        self.changes, self.positions = ChangeRequests(self), MovingPositions(hub)
        self._health = ServiceHealth(hub, self.version)

    # ---------------------------------------------------------------- life

    def ready(self, core: Core, history: EventHistory) -> None:
        self._core, self._history = core, history
        self._health.core, core.on_measured = core, self._health.tell
        self._health.tell()

    def has_sites(self, sites: Membership, auditor: Auditor) -> None:
        """Sites can be answered from now on, also before the core is there."""
        self._sites = self._health.sites = sites
        self.auditor = auditor

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

    def take_rows(self, sources: Mapping[str, object]) -> None:
        """Rows for these sources can be posted here, for those that take posted rows."""
        self.receivers = {name: source for name, source in sources.items() if isinstance(source, HttpPush)}

    def stopping(self) -> None:
        self._stopping = self._health.is_stopping = True
        self._health.tell()

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
        self._replicas = self._health.replicas = replicas

    def has_standby(self, standby: StandbyFacts) -> None:
        """It has a standby from now on, or is one."""
        self._health.standby = standby

    def has_reconciliation(self, problems: Callable[[], Mapping[str, tuple[str, ...]]]) -> None:
        """It was restored from a backup, with which sites may disagree."""
        self._health.disagreements = problems

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
        return self._health.shown()

    def absent_owner(self, node: str) -> str | None:
        """The site that a node belongs to, where that site is away."""
        return self._sites.roster.absent_owner(node) if self._sites is not None else None
