"""The end of changes on a host: they take effect or are aborted, in the store and in the routing table."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence

from meander.deploy.fragments import Channel
from meander.reconfigure.agent.effect import begun, effect, undo
from meander.reconfigure.agent.failover import Failover
from meander.reconfigure.agent.freezer import pauses_after
from meander.reconfigure.agent.in_flight import InFlightChange
from meander.reconfigure.agent.split_times import around
from meander.reconfigure.agent.wiring import with_channels, without_channels
from meander.reconfigure.messages import Positions
from meander.run.failures import reason_of
from meander.run.host import Host
from meander.run.store.commit import REFUSED, Commit
from meander.run.store.journal import JournalError
from meander.run.store.records.reconfigurations import OverlapRecord
from meander.run.store.records.record import Change, forget_all

_log = logging.getLogger(__name__)


class ImpossibleEffectError(Exception):
    """The commit in which changes take effect is impossible. Nothing has happened."""


class ChangeEnding:
    """One commit for everything that changes, then the routing table, each sender being between two steps."""

    def __init__(self, host: Host, failover: Failover, delay_ms: Callable[[Channel], int], *, backed_up: bool) -> None:
        """`backed_up` says whether senders keep what fragments consume."""
        self.host, self.failover, self._delay_ms, self._backed_up = host, failover, delay_ms, backed_up

    def effect(
        self,
        under_way: Mapping[int, InFlightChange],
        positions: Mapping[int, Positions],
        records: Mapping[int, list[Change]],
    ) -> dict[int, str]:
        """Changes happen, all in one commit with the records of each; those that are not under way have happened.

        If one of them is impossible, the others happen one by one. Gives the impossible ones with the reason.
        """
        changes = [under_way[n] for n in positions if n in under_way]
        told = [record for each in records.values() for record in each]
        try:
            if changes:
                self._take_effect(changes, positions, told)
            elif told:
                self.host.store.commit(Commit(records=tuple(told)))
        except ImpossibleEffectError as error:
            if len(positions) == 1:
                _log.exception("change %d cannot take effect", changes[0].number)
                return {changes[0].number: str(error)}
            refused: dict[int, str] = {}
            for number, at in positions.items():
                mine = {number: records[number]} if number in records else {}
                refused |= self.effect(under_way, {number: at}, mine)
            return refused
        return {}

    def _take_effect(
        self, changes: Sequence[InFlightChange], positions: Mapping[int, Positions], records: Sequence[Change]
    ) -> None:
        """The changes happen, all together; `positions` say where their fragments have stopped, on all hosts."""
        fed = self.host.feeding.channels
        self.host.feeding.drop({p for c in changes for p in c.gone_ports})
        try:
            self._exchange(changes, self._commit_of(changes, positions, records))
        except (JournalError, ImpossibleEffectError):
            self.host.feeding.add(fed)
            raise
        for change in changes:
            self.host.feeding.add(change.installation.ingest)

    def _exchange(self, changes: Sequence[InFlightChange], commit: Callable[[], Commit]) -> None:
        host, routing = self.host, self.host.routing
        closed = [c for change in changes for c in change.part.closed]
        opened = [c for change in changes for c in change.part.opened if c.sender not in change.part.change.fragments]
        beside = [change for change in changes if change.is_forked]
        busy = {f for change in beside for f in around(change.part)}
        with host.between_steps({c.sender for c in closed} | with_channels(routing, opened).keys() | busy):
            still = {f: change.number for change in beside for f in change.old}
            if still:
                routing.drain(still)  # nobody looks at their channels from here on
            try:
                self._write(commit())
            except BaseException:
                if still:
                    routing.install([routing.fragments[f] for f in still])
                raise
            gone = {f for change in changes for f in change.old}
            added = [routing.as_bound(f) for change in changes for f in change.installation.fragments]
            pauses = {f: p for change in changes for f, p in pauses_after(host, change).items()}
            routing.exchange(gone - {f.fragment for f in added}, added, pauses)
            wires = with_channels(routing, opened)  # of changes that had no marker to put in
            wires = without_channels(routing, (c for c in closed if c.sender not in gone), wires)
            if wires:
                routing.rewire(wires)
            for change in changes:
                self.failover.stop_gone(change.part.after.values())
            host.store.state.begin_epoch()

    def _commit_of(
        self, changes: Sequence[InFlightChange], positions: Mapping[int, Positions], records: Sequence[Change]
    ) -> Callable[[], Commit]:
        """Makes the commit, when everybody is between two steps."""
        told = [*records, *forget_all(OverlapRecord, (c.number for c in changes if c.is_forked))]

        def made() -> Commit:
            try:
                return effect(changes, positions, self.host.store, self._delay_ms, told, backed_up=self._backed_up)
            except Exception as error:
                raise ImpossibleEffectError(reason_of(error)) from error

        return made

    def _write(self, commit: Commit) -> None:
        try:
            self.host.store.commit(commit)
        except REFUSED as error:
            raise ImpossibleEffectError(reason_of(error)) from error

    def abort(self, changes: Sequence[InFlightChange]) -> None:
        """Old fragments go on from where they stopped; nothing is left of changes for which nothing had begun."""
        host, routing = self.host, self.host.routing
        for change in changes:
            for move in change.moves.values():
                move.cancel()
        armed = [c for c in changes if c.is_armed]
        if not armed:
            return
        known = set(host.store.exchange.channels())
        opened = [channel for c in armed for channel in begun(c, known)]
        # A step under way may be about to stop old fragments: it ends first, and what it says is undone.
        with host.between_steps({c.sender for c in opened} | {f for c in armed for f in c.old}):
            host.store.commit(undo(armed, host.store))
            wires = without_channels(routing, opened)
            if wires:
                routing.rewire(wires)
            for change in armed:
                routing.go_on(change.number)
                self.failover.stop_gone(change.part.before.values())
