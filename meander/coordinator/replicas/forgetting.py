"""Giving up a site whose directory is lost for good: a replica goes on for it, its nodes are nobody's, it ends."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from meander.coordinator.membership.members import Membership
from meander.coordinator.membership.records import MemberState
from meander.coordinator.problems import conflict, not_found
from meander.coordinator.replicas.supervisor import ReplicaSupervisor
from meander.model.errors import unknown


class SiteForget:
    """From any thread."""

    def __init__(self, supervisor: ReplicaSupervisor, membership: Membership) -> None:
        self._supervisor, self._membership = supervisor, membership

    def forget(self, site: str, who: str) -> dict[str, Any]:
        """Gives a site up; says from where what ran there goes on."""
        supervisor = self._supervisor
        rows = {row.name: row for row in supervisor.around.sites()}
        if site not in rows:
            raise not_found(unknown("site", site, rows))
        if MemberState(rows[site].state).is_present:
            raise conflict(f"site {site!r} is here; stop it first, or let it leave, which moves what can run elsewhere")
        present = {name for name, row in rows.items() if MemberState(row.state).is_present}
        record = supervisor.ledger.of(site)
        if not record.is_forgotten:
            if site not in supervisor.stand_ins and supervisor.around.runs(site):
                supervisor.take_over(site, present)
            record = supervisor.ledger.of(site)
            supervisor.ledger.save(replace(record, is_forgotten=True, restoring=rows[site].instance))
            self._membership.release(site, who)
        record = supervisor.ledger.of(site)
        return {
            "site": site,
            "goes_on_at": record.stands_in or None,
            "lost": [],
        }
