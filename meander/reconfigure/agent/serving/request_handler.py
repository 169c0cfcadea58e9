"""A host's request handler: orders of the coordinator, and what other hosts may have from here."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from meander.membership.fence import Fence, FencedError
from meander.membership.protocol import FIRST_PROTOCOL, PROTOCOL, Epoch, is_spoken, not_spoken
from meander.model.errors import InputError, unknown
from meander.model.ids import ChannelId, OperatorId
from meander.reconfigure.agent.agent import Agent
from meander.reconfigure.agent.serving.access import Access
from meander.reconfigure.agent.serving.peers import PeerDirectory
from meander.reconfigure.agent.serving.replication import Replication
from meander.reconfigure.codec import decode, encode
from meander.reconfigure.messages import MESSAGES, Effect, PartStatuses
from meander.run.channels.flight.client import FlightClient, PeerRefusedError
from meander.run.channels.flight.server import PullRequest, Serve, StateAnswer, StateRequest
from meander.run.reporting.inventory import take_inventory
from meander.run.resuming import resume

Order = Callable[[Mapping[str, Any]], Any]
ELECT = "elect"
NEWEST = "newest"
"""The fact in a refusal that says which coordinator acts."""
REPLICATED_S = 5.0
"""An answer waits for so long until replicas have what it says."""


class AgentRequestHandler:
    """Implements `RequestHandler` for a site, or for the coordinator's own host, which gets no orders from outside."""

    def __init__(
        self,
        name: str,
        agent: Agent,
        peers: PeerDirectory,
        replication: Replication,
        fence: Fence | None = None,
        *,
        world: Callable[[Mapping[str, Any]], None] = lambda told: None,
        changed: Callable[[], None] = lambda: None,
        facts: Callable[[], dict[str, Any]] = dict,
        orders: Mapping[str, Order] | None = None,
        serve_kept: Serve | None = None,
        vote: Order | None = None,
    ) -> None:
        """`world` is told of streams and sinks, `changed` after an effect; `facts` are told with every `hello`.

        `orders` are more orders than those about this host; `serve_kept` gives other sites back what is kept of them;
        `vote` answers a standby of the coordinator.
        """
        self.name, self.agent, self.peers, self.access = name, agent, peers, Access(agent)
        self._fence, self._world, self._changed, self._facts = fence, world, changed, facts
        self._replication, self._serve_kept, self._vote = replication, serve_kept, vote
        self._orders: dict[str, Order] = {
            "hello": lambda told: {"site": name, "changes": list(agent.changes), **self._facts()},
            "peers": lambda told: peers.learn(told["peers"]),
            "world": lambda told: self._world(told),
            "inventory": lambda told: take_inventory(agent.host.store, agent.host.routing).to_json(),
            "resume": lambda told: resume(
                agent.host, told.get("name"), [OperatorId(o) for o in told.get("operators", ())]
            ),
            "replicate": replication.configure,
            **(orders or {}),
        }

    # ---------------------------------------------------------------- for other hosts

    def may_pull(self, reader: str, via: str, channel: ChannelId) -> bool:
        return self.access.may_pull(reader, via, channel)

    def publish(self, reader: str, asked: PullRequest) -> bool:
        kafka = self.agent.remote_channels.kafka
        return kafka is not None and kafka.publish(reader, asked)

    def is_given_away(self, channel: ChannelId) -> bool:
        return self.access.is_given_away(channel)

    def state(self, reader: str, via: str, asked: StateRequest) -> StateAnswer:
        return self.access.state(reader, via, asked)

    def client_for(self, site: str) -> FlightClient:
        return self.peers.client_for(site)

    def replica(
        self, keeper: str, asked: Mapping[str, Any], left: int, wait_s: float
    ) -> Iterator[tuple[Mapping[str, Any], bytes]]:
        if asked.get("site", self.name) != self.name:
            if self._serve_kept is None:
                raise InputError("nothing of other sites is kept here")
            return self._serve_kept(keeper, asked, left, wait_s)
        return self._replication.serve(keeper, asked, left, wait_s)

    # ---------------------------------------------------------------- for the coordinator

    def order(self, action: str, body: Mapping[str, Any]) -> Any:
        """Carries an order out. One of a coordinator that is not the newest is refused."""
        if self._fence is None:
            raise InputError("this is the coordinator's own host; it takes no orders from outside")
        if not is_spoken(spoken := int(body.get("protocol", FIRST_PROTOCOL))):
            raise InputError(not_spoken(PROTOCOL, spoken))
        if action == ELECT:  # of one that is not the coordinator yet
            if self._vote is None:
                raise InputError("no votes are given here")
            return self._vote(body)
        try:
            self._fence.accept(Epoch.of_json(body))
        except FencedError as error:
            raise PeerRefusedError(str(error), {NEWEST: error.newest.as_json()}) from None
        if action in MESSAGES:
            return self._told(action, body)
        if action not in self._orders:
            raise unknown("order", action, (*MESSAGES, *self._orders))
        return self._orders[action](body)

    def _told(self, action: str, body: Mapping[str, Any]) -> Any:
        message = decode(MESSAGES[action], body)
        answer = self.agent.take(message)
        if not isinstance(answer, PartStatuses) or any(s.is_relied_on for s in answer.by_number.values()):
            self.agent.host.store.syncer.sync()  # others act on it: a start of this machine must not take it back
        self._replication.wait(REPLICATED_S)  # what the coordinator knows of this host must not be lost with it
        if isinstance(message, Effect):
            self._changed()
        return encode(answer)
