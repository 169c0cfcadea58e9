"""Decided changes: in effect at the coordinator's own host, and told to sites until it is in effect everywhere."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from meander.reconfigure.agent.agent import Agent
from meander.reconfigure.codec import decode, encode
from meander.reconfigure.driver.deployment_records import remote_records
from meander.reconfigure.driver.outbox import Outbox
from meander.reconfigure.driver.participants import Participants
from meander.reconfigure.driver.progress import Progress
from meander.reconfigure.messages import Effect, Positions
from meander.reconfigure.outcome import ReconfigurationOutcome
from meander.run.channels.flight.proof import HOME
from meander.run.fragments.retained_bindings import forget
from meander.run.store.commit import Commit
from meander.run.store.records.reconfigurations import DecidedRecord, OverlapRecord
from meander.run.store.records.record import Change, forget_all


class DecidedChanges:
    """Those of one driver. The commit that decides is also the effect at the own host."""

    def __init__(self, agent: Agent, participants: Participants) -> None:
        self._agent, self._participants = agent, participants
        self.outbox: Outbox | None = None
        self.settle: Callable[[Iterable[Progress]], None] = lambda told: None
        """Makes sure that what was decided lasts, before sites hear of it."""
        self._waiting: dict[int, ReconfigurationOutcome | None] = {}
        """Not everywhere in effect: with the outcome that is told then, unless that was long ago."""

    @property
    def numbers(self) -> tuple[int, ...]:
        """Those that some site has still to hear of."""
        return tuple(self._waiting)

    def decide(
        self, complete: Sequence[Progress], clock: Callable[[], float]
    ) -> tuple[list[ReconfigurationOutcome], dict[int, str]]:
        """One commit: from here on the changes have happened, whoever hears of it when.

        Gives the outcomes of those that nobody else has to hear of, and the impossible ones with the reason.
        """
        positions = {p.number: p.positions for p in complete}
        records = {p.number: self._records(p) for p in complete if not p.is_alone}
        done = self._agent.effect(Effect(positions), records)
        self.settle(complete)
        now = clock()
        happened = [p for p in complete if p.number not in done.refused]
        outcomes = [self._happens(p, positions[p.number], now) for p in happened]
        return [outcome for p, outcome in zip(happened, outcomes, strict=True) if p.is_alone], dict(done.refused)

    def _happens(self, progress: Progress, positions: Positions, now: float) -> ReconfigurationOutcome:
        change, outcome = progress.reconfiguration.change, progress.outcome(now)
        self._participants.left(change.fragments_before.keys() - change.fragments_after.keys())
        forget(self._participants.plan, change.fragments_before.values())
        if not progress.is_alone:
            assert self.outbox is not None
            for site in progress.parts.keys() - {HOME}:
                self.outbox.add_effect(site, progress.number, positions)
            self._waiting[progress.number] = outcome
        return outcome

    def _records(self, progress: Progress) -> list[Change]:
        """The records of a change that touches sites: the fragments there, and the sites that have to hear of it."""
        sites = [site for site in progress.parts if site != HOME]
        decided = DecidedRecord(progress.number, tuple(sites), encode(progress.positions))
        change = progress.reconfiguration.change
        return [*remote_records(change, self._participants.sites), decided, OverlapRecord.forgotten(progress.number)]

    def ended(self) -> list[ReconfigurationOutcome]:
        """The outcomes of changes that are in effect everywhere by now, each once."""
        outbox = self.outbox
        done = [] if outbox is None else [n for n in self._waiting if not outbox.has_effect(n)]
        if done:
            self._agent.host.store.commit(Commit(records=tuple(forget_all(DecidedRecord, done))))
        return [outcome for n in done if (outcome := self._waiting.pop(n)) is not None]

    def resume(self) -> None:
        """Goes on telling sites what an earlier process has decided."""
        for decided in self._agent.host.store.records(DecidedRecord).values():
            self._waiting[decided.number] = None
            for site in decided.sites:
                if self.outbox is not None:
                    self.outbox.add_effect(site, decided.number, decode(Positions, decided.told))
