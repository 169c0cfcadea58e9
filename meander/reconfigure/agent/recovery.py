"""Changes that were in flight when a host's process ended: taken up as the store remembers them, or aborted."""

from __future__ import annotations

from meander.reconfigure.agent.effect import undo
from meander.reconfigure.agent.in_flight import InFlightChange, parts_under_way
from meander.reconfigure.agent.overlap import Overlaps
from meander.reconfigure.agent.preparation import PartPreparation
from meander.reconfigure.agent.state.mover import StateMover
from meander.reconfigure.agent.state.precopies import forget_sent
from meander.reconfigure.agent.state.rebuilding import remove_unfinished
from meander.reconfigure.agent.wiring import with_channels
from meander.reconfigure.codec import decode
from meander.reconfigure.messages import Positions
from meander.reconfigure.part import Part
from meander.run.installation import Installation
from meander.run.store.records.reconfigurations import DrainedRecord, PartRecord


class ChangeRecovery:
    """The changes of one host when its process begins."""

    def __init__(
        self,
        changes: dict[int, InFlightChange],
        preparation: PartPreparation,
        overlaps: Overlaps,
        mover: StateMover,
    ) -> None:
        self.host, self._changes, self._preparation = preparation.host, changes, preparation
        self._overlaps, self._mover = overlaps, mover

    def recover(self) -> None:
        """Takes up the parts that were under way; what runs has been installed before."""
        forget_sent(self.host.store)
        for part, record in parts_under_way(self.host.store):
            self.resume(part, record)

    def resume(self, part: Part, record: PartRecord) -> None:
        """Brings a part as far as it was."""
        routing, number = self.host.routing, part.number
        self._changes[number] = change = self._preparation.bind(part)
        change.is_armed, change.is_marked, change.added = True, record.is_marked, list(record.added)
        change.fetched = None if record.fetched is None else decode(Positions, record.fetched)
        self._preparation.make_plans(change)
        if record.times is not None:
            self._overlaps.resume(change, record.times)
            return
        routing.wait_for(part.marker)
        done = {f: each for f in change.old if (each := self.host.store.record(DrainedRecord, (number, f)))}
        change.frozen = {f for f, drained in done.items() if drained.is_frozen}
        routing.drain(dict.fromkeys(done, number))
        opened = [c for c in part.opened if c.sender not in part.change.fragments]
        if change.is_marked and not change.lets_senders_wait and (wires := with_channels(routing, opened)):
            routing.rewire(wires)
        self._mover.start(change)

    def abort_undecided(self) -> None:
        """Aborts what was under way at the coordinator's own host: the driver that decides has started again.

        Where old and new fragments run side by side, it takes the change up.
        """
        store = self.host.store
        for part, record in parts_under_way(store):
            if record.times is not None:
                continue
            moving = tuple(h for h in part.handovers if part.is_here(h.target))
            change = InFlightChange(part, Installation((), ()), {}, moving, added=list(record.added))
            store.commit(undo([change], store))
        remove_unfinished(store)
        forget_sent(store)
