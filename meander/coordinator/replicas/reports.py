"""Reports about replicas: sites tell about the keepers of their own stores, keepers about replicas that they keep, and
about those that run there in place of others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from meander.coordinator.membership.roster import Roster
from meander.coordinator.replicas.keeper_records import ReplicaLedger
from meander.coordinator.replicas.lags import KeeperLag, Kept, lagging, lags_of, mapping, refusal_of
from meander.reconfigure.replicas.replicas import Replicas
from meander.run.channels.flight.proof import HOME
from meander.run.reporting.host_report import HostReport


class ReplicaReports:
    """As of the last heartbeats; of the coordinator's own host as of now."""

    def __init__(self, ledger: ReplicaLedger, roster: Roster, own: Replicas) -> None:
        self._ledger, self._roster, self._own = ledger, roster, own

    def facts(self) -> dict[str, Mapping[str, Any]]:
        """The facts about all sites: those that are there, and replicas that run in place of others."""
        found: dict[str, Mapping[str, Any]] = {}
        for keeper, kept in self._kept().items():
            for site, status in kept.items():
                if report := mapping(mapping(status).get("report")):
                    found[site] = {**report, "stands_in": keeper}
        return {**found, **self._roster.facts()}

    def reports(self) -> dict[str, HostReport]:
        """The reports of all sites, with how their replicas are doing."""
        found = {site: HostReport.of_json(facts) for site, facts in self.facts().items()}
        return {site: replace(report, lagging=lagging(site, self.lags(site))) for site, report in found.items()}

    def lags(self, site: str) -> list[KeeperLag]:
        """How far the replicas of a site are."""
        told = mapping(self.facts().get(site, {}).get("replication"))
        return lags_of(self._ledger.of(site), told, self._kept())

    def refusal(self, site: str, keeper: str) -> str | None:
        """Why a keeper keeps no replica of a site any more, or must not be waited for."""
        told = mapping(self.facts().get(site, {}).get("replication"))
        return refusal_of(self._kept().get(keeper, {}).get(site), told.get(keeper))

    def _kept(self) -> dict[str, Kept]:
        """The accounts of keepers of the replicas that they keep, by keeper and site."""
        told = {keeper: mapping(facts.get("replicas")) for keeper, facts in self._roster.facts().items()}
        return {**told, HOME: self._own.status(with_reports=True)}
