"""The transport between a driver and agents: in process at once, to other hosts from a pool's threads."""

from __future__ import annotations

from concurrent.futures import Executor, Future
from typing import Protocol

from meander.reconfigure.agent.agent import Agent
from meander.reconfigure.driver.outbox import Outbox
from meander.reconfigure.messages import Answer, Message
from meander.run.channels.flight.proof import HOME


class Transport(Protocol):
    """Brings messages to agents."""

    def ask(self, site: str, message: Message) -> Future[Answer]:
        """The answer, when it comes."""

    def has_messages(self, site: str) -> bool:
        """Whether a host has to hear of the end of something before it can begin something new."""


class InProcess:
    """The coordinator's own host alone."""

    def __init__(self, agent: Agent) -> None:
        self.agent = agent

    def ask(self, site: str, message: Message) -> Future[Answer]:
        assert site == HOME, f"there is no site {site}"
        found: Future[Answer] = Future()
        try:
            found.set_result(self.agent.take(message))
        except Exception as error:
            found.set_exception(error)
        return found

    def has_messages(self, site: str) -> bool:
        return False


class Network:
    """The own host and those of a fleet."""

    def __init__(self, agent: Agent, outbox: Outbox, pool: Executor) -> None:
        self._own, self._outbox, self._pool = InProcess(agent), outbox, pool

    def ask(self, site: str, message: Message) -> Future[Answer]:
        if site == HOME:
            return self._own.ask(site, message)
        return self._pool.submit(self._outbox.ask, site, message)

    def has_messages(self, site: str) -> bool:
        return site != HOME and self._outbox.has_messages(site)
