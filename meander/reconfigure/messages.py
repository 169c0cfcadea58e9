"""The messages of a reconfiguration: from the driver to the agents of hosts, and back.

All of them are about many changes at once, and all are idempotent: a driver that gets no answer asks again. In one
process they are passed as they are; between processes `codec` makes JSON of them, whose version is
`meander.membership.protocol.PROTOCOL`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from meander.deploy.fragments import Channel
from meander.model.ids import ChannelId, FragmentId, OperatorId
from meander.reconfigure.part import Part, Route

Numbers = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Positions:
    """Where fragments of a change have stopped: what hosts tell each other through the driver."""

    readers: Mapping[ChannelId, tuple[int, int]] = field(default_factory=dict)
    """Channels that get another reader elsewhere: the position from which it reads, and the watermark before that."""
    logs: Mapping[ChannelId, tuple[int, int, int]] = field(default_factory=dict)
    """Logs that begin elsewhere afterwards: position and watermark of the reader, and the end of the log."""
    floors: Mapping[FragmentId, int] = field(default_factory=dict)
    """Watermarks that were reached without an input that is away."""
    frozen: frozenset[FragmentId] = frozenset()
    """Fragments that stopped where they were, because they are paused."""
    seen: Mapping[OperatorId, int] = field(default_factory=dict)
    """Event times before which operators of an overlap may have tuples that their new fragments never get."""
    entered: Mapping[OperatorId, int] = field(default_factory=dict)
    """The same for what operators have sent and old fragments have still to read."""

    def merged(self, other: Positions) -> Positions:
        return Positions(
            {**self.readers, **other.readers},
            {**self.logs, **other.logs},
            {**self.floors, **other.floors},
            self.frozen | other.frozen,
            {**self.seen, **other.seen},
            {o: max(t, self.entered.get(o, t)) for o, t in {**self.entered, **other.entered}.items()},
        )


@dataclass(frozen=True, slots=True)
class Prepare:
    """Binds what will run, makes its plans ready, and lets what runs stop at the marker."""

    ACTION: ClassVar[str] = "prepare"
    parts: tuple[Part, ...]
    under_way: Numbers = ()
    """All changes that the driver knows of: older ones that are not among them were aborted."""

    @property
    def numbers(self) -> Numbers:
        return tuple(part.number for part in self.parts)


@dataclass(frozen=True, slots=True)
class Mark:
    """Opens new channels and puts the marker into those that lead into a change."""

    ACTION: ClassVar[str] = "mark"
    numbers: Numbers


@dataclass(frozen=True, slots=True)
class Poll:
    """Asks how far changes are, and lets those go on that can."""

    ACTION: ClassVar[str] = "poll"
    numbers: Numbers


@dataclass(frozen=True, slots=True)
class ForkAt:
    """Old fragments that have stopped go on up to these event times, new ones run beside them from there on."""

    ACTION: ClassVar[str] = "fork"
    times: Mapping[int, Mapping[OperatorId, int]]
    """By change, and by operator whose results leave it."""


@dataclass(frozen=True, slots=True)
class Fetch:
    """Fetches state that comes from elsewhere, and logs that begin here from now on."""

    ACTION: ClassVar[str] = "fetch"
    positions: Mapping[int, Positions]


@dataclass(frozen=True, slots=True)
class Effect:
    """Changes have been decided: they happen, all in one commit."""

    ACTION: ClassVar[str] = "effect"
    positions: Mapping[int, Positions]


@dataclass(frozen=True, slots=True)
class Abort:
    """Old fragments go on from where they stopped."""

    ACTION: ClassVar[str] = "abort"
    numbers: Numbers


@dataclass(frozen=True, slots=True)
class Reroute:
    """Channels take another route, or none for now. A message with an older turn than the last one has no effect."""

    ACTION: ClassVar[str] = "reroute"
    channels: tuple[tuple[Channel, Route], ...]
    turn: tuple[int, int] = (0, 0)
    """Epoch of the coordinator, and a number that grows with every such message."""


@dataclass(frozen=True, slots=True)
class PrepareAhead:
    """Changes that are expected, not decided: plans are made ready, and the bulk of large states is sent."""

    ACTION: ClassVar[str] = "prepare_ahead"
    parts: tuple[Part, ...]
    most_bytes: int = 0
    """How much state is sent to one node for changes that may never be."""


@dataclass(frozen=True, slots=True)
class KeepAhead:
    """The expected changes that are still expected: what was prepared for others is dropped."""

    ACTION: ClassVar[str] = "keep_ahead"
    numbers: Numbers


Message = Prepare | Mark | Poll | ForkAt | Fetch | Effect | Abort | Reroute | PrepareAhead | KeepAhead
MESSAGES: Mapping[str, type[Message]] = {
    kind.ACTION: kind for kind in (Prepare, Mark, Poll, ForkAt, Fetch, Effect, Abort, Reroute, PrepareAhead, KeepAhead)
}


@dataclass(frozen=True, slots=True)
class Done:
    """The answer to all messages but polls: all of it has been done, but for what was refused."""

    refused: Mapping[int, str] = field(default_factory=dict)
    """Changes that cannot go on here, with the reason."""
    prepared: frozenset[int] = frozenset()
    """Changes whose plans are ready already."""


@dataclass(frozen=True, slots=True)
class PartStatus:
    """How far one change is on one host."""

    problem: str | None = None
    """Why it cannot go on."""
    fails_again: bool = False
    """Whether it would fail again if it were tried again at once."""
    prepared: bool = False
    drained: bool = False
    """Whether all old fragments have stopped."""
    complete: bool = False
    """Whether old fragments have said all that is theirs, and new ones have come as far."""
    arrived: bool = False
    """Whether everything that comes here is here."""
    waits_for: str | None = None
    """Why it may never go on, if that lasts."""
    moved: Mapping[OperatorId, int] = field(default_factory=dict)
    """Bytes of state that have come, by operator."""
    positions: Positions = field(default_factory=Positions)
    windows_s: float = 0.0
    """How long windows that had begun need at least, where old and new fragments run side by side."""

    @property
    def is_relied_on(self) -> bool:
        """Whether other hosts act on it, so that it must not be taken back by a power failure."""
        return self.drained or self.complete or self.arrived


@dataclass(frozen=True, slots=True)
class PartStatuses:
    """The answer to a poll; changes that are not known here are missing."""

    by_number: Mapping[int, PartStatus]


Answer = Done | PartStatuses


def answer_to(message: Message) -> type[Answer]:
    """The kind of answer that a message gets."""
    return PartStatuses if isinstance(message, Poll | KeepAhead) else Done
