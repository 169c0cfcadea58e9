"""Giving up a site whose directory is lost for good: what ran there goes on elsewhere or can be stopped, and it ends.

From a replica, if one can go on. Without any, the site begins anew with nothing: other sites know how far its channels
are, so that its fragments go on behind what was lost, which is named.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from http import HTTPStatus
from typing import Any

from meander.coordinator.core.commands import ANSWER_S, Answer, CoreTask
from meander.coordinator.core.core import Core
from meander.coordinator.membership.members import Membership
from meander.coordinator.membership.records import MemberState
from meander.coordinator.problems import conflict, not_found
from meander.coordinator.replicas.lost_sites import lost_with_nodes, what_is_known
from meander.coordinator.replicas.supervisor import ReplicaSupervisor
from meander.model.errors import InputError, unknown
from meander.model.ids import ChannelId
from meander.reconfigure.driver.driver import Driver
from meander.reconfigure.replicas.lost_site import ChannelPosition, LostSite, positions_of
from meander.reconfigure.replicas.replicas import Replicas
from meander.run.channels.flight.client import AwayError
from meander.run.channels.flight.proof import HOME
from meander.run.store.records.replicas import KeepersRecord


class SiteForget:
    """From any thread, once the core is there."""

    def __init__(
        self,
        supervisor: ReplicaSupervisor,
        membership: Membership,
        driver: Driver,
        own: Replicas,
        core: Callable[[], Core],
    ) -> None:
        self._supervisor, self._membership, self._driver, self._own, self._core = (
            supervisor,
            membership,
            driver,
            own,
            core,
        )

    def forget(self, site: str, who: str) -> dict[str, Any]:
        """Gives a site up; says where what ran there goes on, and what is lost."""
        with self._supervisor.deciding:
            return self._forgotten(site, who)

    def _forgotten(self, site: str, who: str) -> dict[str, Any]:
        supervisor = self._supervisor
        rows = {row.name: row for row in supervisor.around.sites()}
        if site not in rows:
            raise not_found(unknown("site", site, rows))
        if MemberState(rows[site].state).is_present:
            raise conflict(f"site {site!r} is here; stop it first, or let it leave, which moves what can run elsewhere")
        lost: list[str] = []
        if not supervisor.ledger.of(site).is_forgotten:
            present = {name for name, row in rows.items() if MemberState(row.state).is_present}
            claims = self._membership.roster.claims
            nodes = {node for node, owner in claims.items() if owner == site}
            lost = self._ask(lambda core: (HTTPStatus.OK, lost_with_nodes(core, nodes)))
            goes_on = site in supervisor.promoted or not supervisor.around.runs(site)
            if not goes_on and not supervisor.take_over(site, present):
                lost += self._begin_anew(site)
            record = supervisor.ledger.of(site)
            supervisor.ledger.save(replace(record, is_forgotten=True, restoring=rows[site].instance))
            supervisor.problems.pop(site, None)
            self._membership.release(site, who)
            supervisor.end_play(site)
        return {"site": site, "goes_on_at": supervisor.ledger.of(site).stands_in or None, "lost": lost}

    # ---------------------------------------------------------------- without any replica

    def _begin_anew(self, site: str) -> list[str]:
        """Lets a site begin with nothing at the coordinator's own host; says what is lost."""
        supervisor, key = self._supervisor, self._supervisor.around.key(site)
        if key is None:
            raise conflict(f"site {site!r} has no token any more; make one with `meander site token create` first")
        part, ends, lost = self._ask(lambda core: (HTTPStatus.OK, what_is_known(core, self._driver, site)))
        found = dict[ChannelId, ChannelPosition]()
        for other, channels in ends.items():
            found |= self._positions(other, channels)
        self._own.begin_anew(site, key, LostSite(part, found))
        record = supervisor.ledger.of(site)
        supervisor.ledger.save(KeepersRecord(site, {}, record.term, stands_in=HOME))
        if not supervisor.promote(supervisor.ledger.of(site)):
            raise conflict(supervisor.problems.get(site, f"site {site!r} could not begin anew"))
        return list(lost)

    def _positions(self, other: str, channels: list[ChannelId]) -> dict[ChannelId, ChannelPosition]:
        if other == HOME:
            found = positions_of(self._driver.host.store, channels)
        else:
            try:
                found = self._supervisor.orders.ask(other, "positions", {"channels": channels})
            except (AwayError, InputError) as error:
                raise conflict(f"site {other!r}, at the other end of its channels, has to be there: {error}") from None
        return {ChannelId(int(c)): ChannelPosition(*at) for c, at in found.items()}

    def _ask(self, run: Callable[[Core], Answer]) -> Any:
        return self._core().ask(CoreTask(run)).result(ANSWER_S)[1]
