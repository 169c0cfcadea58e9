"""Routes of channels that change: the hosts of both ends are told, and what is between sites is remembered."""

from __future__ import annotations

from collections.abc import Mapping

from meander.deploy.fragments import Channel, ChannelKey
from meander.reconfigure.agent.agent import Agent
from meander.reconfigure.driver.deployment_records import remember_remote
from meander.reconfigure.driver.forks import Forks
from meander.reconfigure.driver.outbox import Outbox
from meander.reconfigure.driver.participants import Participants
from meander.reconfigure.driver.progress import Progress
from meander.reconfigure.messages import Reroute
from meander.run.channels.flight.proof import HOME


class ChannelRoutes:
    """The routes of all channels of one driver."""

    def __init__(
        self, agent: Agent, participants: Participants, progress: Mapping[int, Progress], forks: Forks
    ) -> None:
        self._agent, self._participants, self._progress, self._forks = agent, participants, progress, forks
        self.outbox: Outbox | None = None

    def change(self, channels: Mapping[ChannelKey, Channel]) -> None:
        """Lets channels take another route, or none until it is back."""
        told: dict[str, list[tuple[Channel, tuple[str, ...]]]] = {}
        records, remote = self._forks.reroute(channels), list[Channel]()
        beside = {key for p in self._progress.values() if p.overlaps for key in p.reconfiguration.change.channels_after}
        for key, channel in channels.items():
            sites = {self._participants.site_of(f) for f in (channel.sender, channel.receiver)}
            if HOME not in sites and key not in beside:
                remote.append(channel)
            route = self._participants.route_of(channel)
            for site in sites:
                told.setdefault(site, []).append((channel, route))
        remember_remote(self._agent.host.store, remote, records)
        for site, routes in told.items():
            if site == HOME:
                self._agent.reroute(Reroute(tuple(routes)))
            elif self.outbox is not None:
                self.outbox.tell_routes(site, routes)

    def change_all(self, channels: Mapping[ChannelKey, Channel]) -> None:
        """Tells sites again how channels go that touch them: they may have missed it."""
        away = self._participants.sites
        self.change({key: c for key, c in channels.items() if c.sender in away or c.receiver in away})
