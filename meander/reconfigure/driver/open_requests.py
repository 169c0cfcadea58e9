"""Open requests: what hosts were asked and have not answered, one of each kind at a time and host."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import Future

from meander.model.errors import InputError
from meander.reconfigure.driver.progress import Phase, Progress, message_of
from meander.reconfigure.driver.transport import Transport
from meander.reconfigure.messages import Answer, Message, Prepare
from meander.run.channels.flight.client import AwayError
from meander.run.store.journal import JournalError


class OpenRequests:
    """Reconfigurations that want the same of a host share a message."""

    def __init__(self, transport: Transport) -> None:
        self.transport = transport
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
                if kind is Prepare and self.transport.is_owed(site):
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
