"""The progress of one reconfiguration through its phases, as its driver sees it.

All hosts are asked for a phase's part at the same time, again and again until it is done everywhere; then comes the
next phase. Hosts that are away are waited for. Before the decision a reconfiguration can be aborted at any moment.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import Enum

from meander.deploy.contexts import Reconfiguration
from meander.deploy.control import control_of
from meander.model.ids import OperatorId
from meander.reconfigure.messages import (
    Answer,
    Fetch,
    ForkAt,
    Mark,
    Message,
    PartStatus,
    PartStatuses,
    Poll,
    Positions,
    Prepare,
)
from meander.reconfigure.outcome import ReconfigurationOutcome
from meander.reconfigure.part import Part
from meander.run.channels.flight.proof import HOME

AGAIN_S, AWAY_S = 0.02, 0.3
"""How long until another host is asked again that is not done, or that did not answer."""


class Phase(Enum):
    """The phases of a change; each has to end everywhere before the next begins."""

    PREPARE = "prepare"
    READY = "ready"
    MARK = "mark"
    DRAIN = "drain"
    SPLIT = "split"
    FORK = "fork"
    COMPLETE = "complete"
    FETCH = "fetch"
    ARRIVE = "arrive"
    DECIDED = "decided"


_MESSAGES: Mapping[Phase, type[Message]] = {
    Phase.PREPARE: Prepare,
    Phase.READY: Poll,
    Phase.MARK: Mark,
    Phase.DRAIN: Poll,
    Phase.FORK: ForkAt,
    Phase.COMPLETE: Poll,
    Phase.FETCH: Fetch,
    Phase.ARRIVE: Poll,
}


@dataclass(eq=False)
class Progress:
    """One reconfiguration under way. Not for several threads."""

    reconfiguration: Reconfiguration
    parts: Mapping[str, Part]
    started: float
    not_before: float = 0.0
    """It does not begin earlier than this, by the monotonic clock: it failed before."""
    phase: Phase = Phase.PREPARE
    since: float = 0.0
    """When the phase began."""
    marked: float | None = None
    drained: float | None = None
    times: Mapping[OperatorId, int] = field(default_factory=dict)
    """For an overlap between hosts: where old ends and new begins."""
    complete: float | None = None
    """When the old fragments of an overlap had said all that is theirs."""
    problem: str | None = None
    """Why it is aborted, from the first attempt to do so on."""
    not_at_once: bool = False
    away: dict[str, str] = field(default_factory=dict)
    """Hosts that do not answer now, with the reason."""
    statuses: dict[str, PartStatus] = field(default_factory=dict)
    waiting: set[str] = field(default_factory=set)
    """Hosts that are not done with the phase."""
    _ready: set[str] = field(default_factory=set)
    _due: dict[str, float] = field(default_factory=dict)
    _polled: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.waiting, self.since = set(self.parts), self.started

    @property
    def number(self) -> int:
        return self.reconfiguration.number

    @property
    def is_alone(self) -> bool:
        """Whether only the coordinator's own host takes part."""
        return self.parts.keys() == {HOME}

    @property
    def overlaps(self) -> bool:
        return self.reconfiguration.protocol.overlaps

    @property
    def is_forked(self) -> bool:
        """Whether old and new fragments run side by side, so that it cannot be aborted any more."""
        return bool(self.times) or (self.overlaps and self.is_alone and self.marked is not None)

    @property
    def positions(self) -> Positions:
        """Where the fragments of all hosts have stopped."""
        found = Positions()
        for status in self.statuses.values():
            found = found.merged(status.positions)
        return found

    # ---------------------------------------------------------------- asking

    def wants(self, site: str, turn: int) -> type[Message] | None:
        """The message that a host should get now; the own host is polled once a turn, as it answers at once."""
        now = time.monotonic()
        if self.problem is not None or site not in self.waiting or now < max(self.not_before, self._due.get(site, 0.0)):
            return None
        wanted = _MESSAGES.get(self.phase)
        if site == HOME and self._polled.get(site) == turn:
            return None
        return wanted

    def asked(self, site: str, turn: int) -> None:
        if _MESSAGES.get(self.phase) is Poll:
            self._polled[site] = turn

    def failed(self, site: str, error: Exception, turn: int) -> None:
        """A host did not answer: it is asked again."""
        self.away[site] = str(error)
        self._due[site] = 0.0 if site == HOME else time.monotonic() + AWAY_S
        self._polled[site] = turn

    def take(self, site: str, answer: Answer, now: float) -> None:
        """The answer of a host to the phase's message."""
        self.away.pop(site, None)
        if isinstance(answer, PartStatuses):
            self._look(site, answer.by_number.get(self.number))
        elif self.number in answer.refused:
            self.refuse(site, answer.refused[self.number])
        else:
            if self.number in answer.prepared:
                self._ready.add(site)
            self.waiting.discard(site)
        self._go_on(now)

    def refuse(self, site: str, reason: str) -> None:
        """It cannot go on at a host; one that cannot be aborted any more is tried again."""
        if self.is_forked:
            self.away[site], self._due[site] = reason, time.monotonic() + AWAY_S
            return
        self.problem = reason if site == HOME else f"site {site}: {reason}"
        self.not_at_once = self.is_alone and (self.phase is not Phase.MARK or self.overlaps)

    def _look(self, site: str, status: PartStatus | None) -> None:
        if status is None:
            self.refuse(site, "it does not know of the change any more")
            return
        self.statuses[site] = status
        if status.problem is not None:
            self.refuse(site, status.problem)
            self.not_at_once = self.not_at_once and status.fails_again
        elif _is_done(status, self.phase):
            self.waiting.discard(site)
        elif site != HOME:
            self._due[site] = time.monotonic() + AGAIN_S

    # ---------------------------------------------------------------- going on

    def _go_on(self, now: float) -> None:
        while not self.waiting and self.problem is None and self.phase is not Phase.DECIDED:
            match self.phase:
                case Phase.PREPARE:
                    self._enter(Phase.READY, self.parts.keys() - self._ready, now)
                case Phase.READY:
                    self._enter(Phase.MARK, self.parts.keys(), now)
                case Phase.MARK:
                    self.marked = now
                    self._enter(Phase.DRAIN, self.parts.keys(), now)
                case Phase.DRAIN:
                    self.drained = now
                    if self.overlaps:
                        self._enter(Phase.COMPLETE if self.is_alone else Phase.SPLIT, self.parts.keys(), now)
                    else:
                        self._enter(Phase.FETCH, self._fetching, now)
                case Phase.FORK:
                    self._enter(Phase.COMPLETE, self.parts.keys(), now)
                case Phase.COMPLETE:
                    self.complete = now
                    self._enter(Phase.FETCH, self._fetching, now)
                case Phase.FETCH:
                    arriving = {s for s, part in self.parts.items() if part.fetches or not self.statuses[s].arrived}
                    self._enter(Phase.ARRIVE, arriving, now)
                case _:
                    self._enter(Phase.DECIDED, (), now)

    def _enter(self, phase: Phase, sites: Collection[str], now: float) -> None:
        self.phase, self.since, self.waiting = phase, now, set(sites)
        self._due, self._polled = {}, {}

    @property
    def _fetching(self) -> set[str]:
        return {site for site, part in self.parts.items() if part.fetches}

    def forked(self, times: Mapping[OperatorId, int], now: float) -> None:
        """Old and new fragments run side by side on the own host, or did when the process ended; others are told."""
        self.times = times
        self.marked, self.drained = self.marked or now, self.drained or now
        self._enter(Phase.FORK, self.parts.keys() - {HOME}, now)
        self._go_on(now)

    def overdue(self, now: float, timeout_s: float) -> str | None:
        """Why it is to be aborted, if it has not gone on for too long."""
        if self.problem is not None or self.phase is Phase.DECIDED or self.is_forked or now - self.since <= timeout_s:
            return None
        if self.not_before and time.monotonic() < self.not_before + timeout_s:
            return None
        if self.phase is Phase.READY and not self.away:  # plans take as long as they take
            return None
        away = "".join(f"; {site} is away: {reason}" for site, reason in self.away.items())
        polled = self.phase in (Phase.DRAIN, Phase.ARRIVE)
        reasons = [self.statuses[s].waits_for for s in sorted(self.waiting) if s in self.statuses] if polled else []
        if not away and reasons and not any(reasons):  # state is on its way, however slow that is
            return None
        reason = next((r for r in reasons if r), f"its phase '{self.phase.value}' did not end")
        return f"{reason} within {timeout_s:g} s{away}"

    # ---------------------------------------------------------------- ending

    def outcome(self, ended: float, reason: str | None = None) -> ReconfigurationOutcome:
        """The outcome."""
        change = self.reconfiguration.change
        marked = ended if self.marked is None else self.marked
        drained = ended if self.drained is None else self.drained
        messages, size = control_of(self.reconfiguration)
        before, after = change.fragments_before.keys(), change.fragments_after.keys()
        moved: dict[OperatorId, int] = {o: size for s in self.statuses.values() for o, size in s.moved.items()}
        complete = drained if self.complete is None else self.complete
        forked = self.is_forked
        return ReconfigurationOutcome(
            self.number,
            reason,
            marked - self.started,
            max(0.0, drained - marked),
            ended - complete,
            sum(moved.values()),
            len(after - before),
            len(after & before),
            len(before - after),
            complete - drained,
            max((s.windows_s for s in self.statuses.values()), default=0.0),
            messages,
            size,
            tuple(sorted(change.operators)),
            moved,
            forked,
            self.not_at_once,
        )


def _is_done(status: PartStatus, phase: Phase) -> bool:
    match phase:
        case Phase.READY:
            return status.prepared
        case Phase.DRAIN:
            return status.drained
        case Phase.COMPLETE:
            return status.complete
        case _:
            return status.arrived


def message_of(kind: type[Message], site: str, found: list[Progress], under_way: tuple[int, ...]) -> Message:
    """One message about all these reconfigurations."""
    numbers = tuple(p.number for p in found)
    if kind is Prepare:
        return Prepare(tuple(p.parts[site] for p in found), under_way)
    if kind is Fetch:
        return Fetch({p.number: p.positions for p in found})
    if kind is ForkAt:
        return ForkAt({p.number: p.times for p in found})
    return Mark(numbers) if kind is Mark else Poll(numbers)
