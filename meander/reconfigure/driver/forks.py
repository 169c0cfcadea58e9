"""Overlaps between hosts, as their driver sees them: forked in one commit, rerouted, and taken up after a crash."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from meander.deploy.contexts import Reconfiguration, reconfiguration
from meander.deploy.fragments import Channel, ChannelKey, Deployment
from meander.deploy.protocols.sms import SMS
from meander.model.global_plan import GlobalPlan
from meander.model.ids import OperatorId
from meander.reconfigure.agent.agent import Agent
from meander.reconfigure.agent.split_times import split_times
from meander.reconfigure.driver.participants import Known, Participants
from meander.reconfigure.driver.progress import Progress
from meander.reconfigure.messages import ForkAt
from meander.run.channels.flight.proof import HOME
from meander.run.store.records.reconfigurations import OverlapRecord, PartRecord
from meander.run.store.records.record import Change


class Forks:
    """Overlaps of several hosts have no moment that all of them see: the driver says where old ends and new begins."""

    def __init__(self, agent: Agent, participants: Participants, progress: dict[int, Progress]) -> None:
        self._agent, self._participants, self._progress = agent, participants, progress
        self.settle: Callable[[Iterable[Progress]], None] = lambda told: None
        """Makes sure that what was forked lasts, before sites hear of it."""

    def fork(self, splitting: Sequence[Progress], now: float) -> None:
        """One commit: from here on old and new fragments run side by side, until the old ones have ended."""
        times: dict[int, dict[OperatorId, int]] = {}
        records: list[Change] = []
        for progress in splitting:
            at = progress.positions
            part = next(iter(progress.parts.values()))
            times[progress.number] = found = split_times(part, at.seen, at.entered, self._participants.plan)
            records.append(self._record(progress, found))
        self._agent.fork(ForkAt(times), tuple(records))
        self.settle(splitting)
        for progress in splitting:
            progress.forked(times[progress.number], now)

    def reroute(self, channels: Mapping[ChannelKey, Channel]) -> list[Change]:
        """Channels of overlaps between hosts are remembered with these until the old fragments have ended."""
        records: list[Change] = []
        for progress in (p for p in self._progress.values() if p.overlaps and not p.is_alone):
            change = progress.reconfiguration.change
            mine = {key: c for key, c in channels.items() if key in change.channels_after}
            if mine:
                changed = replace(change, channels_after={**change.channels_after, **mine})
                progress.reconfiguration = replace(progress.reconfiguration, change=changed)
                if progress.is_forked:
                    records.append(self._record(progress, progress.times))
        return records

    def _record(self, progress: Progress, times: Mapping[OperatorId, int]) -> OverlapRecord:
        change, known = progress.reconfiguration.change, self._participants.sites
        sites = {f: known[f] for f in change.fragments_after if f in known}
        return OverlapRecord(progress.number, change, dict(times), sites)

    def resume(self, plan: GlobalPlan, known: Known, deployment: Deployment, now: float) -> list[Reconfiguration]:
        """Takes up changes whose old and new fragments ran side by side: what was forked cannot be aborted."""
        found: list[Reconfiguration] = []
        store = self._agent.host.store
        for number, record in sorted(store.records(OverlapRecord).items()):
            again = reconfiguration(number, record.change, plan, SMS)
            deployment.apply(record.change)
            self._participants.sites |= record.sites
            parts = self._participants.parts_again(again, deployment, plan, known)
            if HOME in parts:
                saved = store.record(PartRecord, number) or PartRecord(number, {}, is_marked=True)
                self._agent.recovery.resume(parts[HOME], replace(saved, times=record.times))
            self._progress[number] = progress = Progress(again, parts, now)
            progress.forked(record.times, now)
            found.append(again)
        return found
