"""Preparation: fragments that a change begins on a host get slots, channels and plans, before anything happens."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Collection, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace

from meander.model.errors import InputError
from meander.reconfigure.agent.in_flight import InFlightChange
from meander.reconfigure.agent.state.mover import StateMover
from meander.reconfigure.part import Part
from meander.reconfigure.serialised_fragment import install_serialised
from meander.run.channels.base import ChannelSpec
from meander.run.failures import reason_of
from meander.run.fragments.bindings import first_slot
from meander.run.host import Host
from meander.run.store.journal import JournalError

_log = logging.getLogger(__name__)
MOST_OVER = 1_000


@dataclass(slots=True)
class PreparedParts:
    """Parts that can begin, and those that cannot with the reason."""

    changes: list[InFlightChange] = field(default_factory=list)
    ready: set[int] = field(default_factory=set)
    """Those for which nothing has to be waited."""
    refused: dict[int, str] = field(default_factory=dict)


class PartPreparation:
    """The preparation of one host's changes; their plans are made ready by a thread of its own."""

    def __init__(self, host: Host, mover: StateMover) -> None:
        self.host, self._mover = host, mover
        self._over: deque[int] = deque(maxlen=MOST_OVER)
        """Changes that were aborted or have happened here: a message to prepare one may come late."""
        self._preparer = ThreadPoolExecutor(1, "preparer")

    def end(self, numbers: Iterable[int]) -> None:
        """These changes are over here."""
        self._over += numbers

    def stop(self) -> None:
        self._preparer.shutdown(wait=False, cancel_futures=True)

    def begin(self, parts: Sequence[Part], known: Collection[int]) -> PreparedParts:
        """Binds the parts that are not known yet."""
        found = PreparedParts()
        for part in parts:
            if part.number in known:
                continue
            try:
                change = self.bind(part)
                is_ready = self.host.plans.are_ready(change.installation.fragments)
                is_ahead = not self._mover.goes_ahead(change)
            except JournalError:
                raise
            except Exception as error:
                if not isinstance(error, InputError):
                    _log.exception("change %d cannot begin", part.number)
                found.refused[part.number] = f"it could not begin: {reason_of(error)}"
            else:
                found.changes.append(change)
                if is_ready and is_ahead:
                    found.ready.add(part.number)
        return found

    def make_plans(self, change: InFlightChange) -> None:
        """Begins to make plans ready that are new to Spark: that takes a while, and nobody waits for it."""
        fragments = change.installation.fragments
        if not self.host.plans.are_ready(fragments):
            change.preparing = self._preparer.submit(self.host.plans.prepare, fragments)

    def bind(self, part: Part) -> InFlightChange:
        """The change as it will be in flight here; raises where fragments that it replaces do not run."""
        if part.number in self._over:
            raise InputError(f"change {part.number} is over here")
        running, slots = self.host.routing.fragments, self.host.routing.slots
        missing = [f for f in part.before if f not in running]
        if missing:
            raise InputError(
                f"fragment {missing[0]} should run at {part.site} and does not; was its directory lost? "
                "start the site with the directory that it had"
            )
        old = {f: running[f] for f in part.before}
        installation = part.installation
        if installation is None:
            bindings = {f: old[f].slot if f in old else first_slot(f, slots) for f in part.after}
            channels = part.local.channels_after
            installation = install_serialised(part.serialised, part.after.values(), channels, bindings)
            specs = {s.channel: s for s in installation.channels}
            for c in channels.values():
                specs.setdefault(c.id, ChannelSpec(c.id, part.schemas[c.id], c.sender, c.receiver))
            installation = replace(installation, channels=tuple(specs.values()))
        here = [h for h in part.handovers if part.is_here(h.target)]
        moving = [h for h in here if not part.is_here(h.source) or self._mover.travels(h)]
        return InFlightChange(part, installation, old, tuple(moving))
