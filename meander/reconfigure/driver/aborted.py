"""Changes that cannot be: they are aborted on all hosts, or never begin; the same again waits a while."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from meander.deploy.contexts import Reconfiguration
from meander.deploy.fragments import Deployment, DeploymentChange
from meander.model.ids import OperatorId
from meander.reconfigure.agent.agent import Agent
from meander.reconfigure.driver.outbox import Outbox
from meander.reconfigure.driver.participants import Participants
from meander.reconfigure.driver.progress import Progress
from meander.reconfigure.messages import Abort
from meander.reconfigure.outcome import ReconfigurationOutcome, never_begun
from meander.run.channels.flight.proof import HOME
from meander.run.failures import reason_of
from meander.run.fragments.retained_bindings import forget
from meander.run.store.journal import JournalError

_log = logging.getLogger(__name__)
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 30.0
"""How long a change between hosts waits that was aborted, the first time and at most: at once it would fail again."""
MOST_COUNTED = 20


class AbortedChanges:
    """How often changes of the same operators were aborted in a row, and how that is done."""

    def __init__(self, agent: Agent, participants: Participants, clock: Callable[[], float]) -> None:
        self._agent, self._participants, self._clock = agent, participants, clock
        self.outbox: Outbox | None = None
        self._counts: dict[frozenset[OperatorId], int] = {}

    def begun(self, each: Reconfiguration, deployment: Deployment, now: float) -> Progress | ReconfigurationOutcome:
        """The change under way, its parts cut; or why it cannot begin, so that others do."""
        try:
            parts = self._participants.parts_of(each, deployment)
        except JournalError:
            raise
        except Exception as error:
            _log.exception("reconfiguration %d cannot begin", each.number)
            return never_begun(each.number, f"it could not begin: {reason_of(error)}")
        count = 0 if parts.keys() == {HOME} else self._counts.get(each.change.operators, 0)
        pause_s = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2**count) if count else 0.0
        return Progress(each, parts, now, time.monotonic() + pause_s if pause_s else 0.0)

    def abort(self, progress: Progress, reason: str) -> ReconfigurationOutcome:
        """Aborts a change: what ran before goes on from where it stopped."""
        change, number = progress.reconfiguration.change, progress.number
        if HOME in progress.parts:
            self._agent.abort(Abort((number,)))
        if not progress.is_alone:
            assert self.outbox is not None
            self._counts[change.operators] = min(self._counts.get(change.operators, 0) + 1, MOST_COUNTED)
            for site in progress.parts.keys() - {HOME}:
                self.outbox.add_abort(site, number)
        forget(self._participants.plan, change.fragments_after.values())
        self._participants.left(change.fragments_after.keys() - change.fragments_before.keys())
        self.let_go_on(change)
        _log.warning("reconfiguration %d was aborted: %s", number, reason)
        return progress.outcome(self._clock(), reason)

    def let_go_on(self, change: DeploymentChange) -> None:
        """Fragments of a change that is not to be go on where they were, also if their node went and came back
        meanwhile: they were to be elsewhere then, so that nobody let them go on."""
        self._agent.failover.let_back({f.id: f.node for f in change.fragments_before.values()})

    def over(self, progress: Progress) -> None:
        """A change of these operators has happened."""
        self._counts.pop(progress.reconfiguration.change.operators, None)
