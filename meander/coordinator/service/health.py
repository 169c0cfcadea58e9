"""The health of the service: put together when asked for, published when a problem appears or disappears."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from meander.coordinator.condition.condition import (
    Condition,
    ServiceCondition,
    ServiceFacts,
    conditions,
    service_condition,
    without_numbers,
)
from meander.coordinator.core.core import Core
from meander.coordinator.membership.members import Membership
from meander.coordinator.read_model.hub import Hub


class SiteReplicas(Protocol):
    """The replicas of sites, as the service knows them."""

    def restore(self, site: str, instance: str) -> Mapping[str, Any] | None: ...

    def forget(self, site: str, who: str) -> Mapping[str, Any]: ...

    def shown(self, site: str) -> Mapping[str, Any] | None: ...

    def problems(self) -> Mapping[str, tuple[str, ...]]: ...


class StandbyFacts(Protocol):
    """Whether this process acts, and how its standby is."""

    @property
    def role(self) -> str: ...

    def shown(self) -> Mapping[str, Any] | None: ...

    def problems(self) -> Sequence[str]: ...


class ServiceHealth:
    """It grows with the service: the core, sites and their replicas come one after the other."""

    def __init__(self, hub: Hub, version: str) -> None:
        self._hub, self._version = hub, version
        self.core: Core | None = None
        self.sites: Membership | None = None
        self.replicas: SiteReplicas | None = None
        self.standby: StandbyFacts | None = None
        self.disagreements: Callable[[], Mapping[str, tuple[str, ...]]] = dict
        """Of sites with the backup that this coordinator was restored from."""
        self.is_stopping = False
        self._started = time.monotonic()
        self._told: Any = None

    def shown(self) -> dict[str, Any]:
        found, standby = self._condition(), self.standby
        role = "active" if standby is None else standby.role
        return {
            "status": found.status if role == "active" else role,
            "problems": list(found.problems),
            "queries": dict(found.queries),
            "version": self._version,
            "uptime_s": round(time.monotonic() - self._started, 1),
            "stages": self._stages(),
            "role": role,
            "standby": None if standby is None else standby.shown(),
        }

    def tell(self) -> None:
        """Publishes the health, when a problem appears or disappears; figures alone are no news."""
        found = self.shown()
        words = found["status"], found["queries"], [without_numbers(p) for p in found["problems"]]
        if words != self._told:
            self._told = words
            self._hub.publish("health", found)

    def _stages(self) -> dict[str, Any] | None:
        """The use of Spark by the stages of the coordinator's own host."""
        measured = self.core.publisher.read_model.views.measured if self.core is not None else None
        use = measured.status.stages if measured is not None else None
        return None if use is None else {"stages": dict(use.stages), "refused": dict(use.refused)}

    def _condition(self) -> ServiceCondition:
        core, sites, problems = self.core, self.sites, list[str]()
        queries: dict[str, Condition] = {}
        if core is not None:
            views = core.publisher.read_model.views
            problems += views.measured.status.problems if views.measured else ()
            problems += core.recent_failures()
            queries = conditions(views.queries.values())
        if sites is not None and sites.leadership.stepped_down is not None:
            problems.append(sites.leadership.stepped_down)
        problems += self.standby.problems() if self.standby is not None else ()
        troubles = sites.roster.troubles() if sites is not None and core is not None else {}
        for lacking in (self.replicas.problems() if self.replicas is not None else {}, self.disagreements()):
            troubles = {s: (*troubles.get(s, ()), *lacking.get(s, ())) for s in sorted({*troubles, *lacking})}
        return service_condition(ServiceFacts(core is not None, self.is_stopping, tuple(problems), troubles, queries))
