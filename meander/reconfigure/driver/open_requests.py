"""Open requests: what hosts were asked and have not answered, one of each kind at a time and host."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import Executor, Future

from meander.model.errors import InputError
from meander.reconfigure.agent.agent import Agent
from meander.reconfigure.driver.outbox import Outbox
from meander.reconfigure.driver.progress import Phase, Progress, message_of
from meander.reconfigure.driver.transport import InProcess, Network, Transport
from meander.reconfigure.messages import Answer, Message, Prepare
from meander.run.channels.flight.client import AwayError
from meander.run.store.journal import JournalError


class OpenRequests:
    """Reconfigurations that want the same of a host share a message."""

    def __init__(self, agent: Agent, outbox: Outbox | None = None, pool: Executor | None = None) -> None:
        """Without an outbox and threads for it, there is the own host alone."""
        self.transport: Transport = InProcess(agent)
        if outbox is not None and pool is not None:
            self.transport = Network(agent, outbox, pool)
        self._open: dict[tuple[str, type[Message]], tuple[Future[Answer], list[Progress]]] = {}

    def send(self, found: Iterable[Progress], turn: int, under_way: tuple[int, ...], *, beginning: bool) -> bool:
        """Asks what can be asked now; says whether something has been answered already.

        What only begins is not polled: nothing can have happened yet.
        """
        wanted: dict[tuple[str, type[Message]], list[Progress]] = {}
        for progress in found:
            for site in progress.waiting:
                kind = progress.wants(site, turn)
                if kind is None or (site, kind) in self._open:
                    continue
                if beginning and progress.phase not in (Phase.PREPARE, Phase.MARK):
                    continue
                if kind is Prepare and self.transport.has_messages(site):
                    continue
                wanted.setdefault((site, kind), []).append(progress)
        for (site, kind), group in wanted.items():
            message = message_of(kind, site, group, under_way)
            for progress in group:
                progress.asked(site, turn)
            self._open[site, kind] = self.transport.ask(site, message), group
        return any(future.done() for future, _ in self._open.values())

    def collect(self, now: float, turn: int) -> None:
        """Takes the answers that have come."""
        for (site, kind), (future, group) in list(self._open.items()):
            if not future.done():
                continue
            del self._open[site, kind]
            for progress in group:
                self._take(progress, site, future, now, turn)

    @staticmethod
    def _take(progress: Progress, site: str, future: Future[Answer], now: float, turn: int) -> None:
        try:
            progress.take(site, future.result(), now)
        except (AwayError, JournalError) as error:
            progress.failed(site, error, turn)
        except InputError as error:
            progress.refuse(site, f"refused: {error}")
        except Exception as error:  # what a host cannot do must not stop everybody else
            progress.refuse(site, f"failed: {type(error).__name__}: {error}")
