"""A host's endpoint in the network: the peers it knows, the broker it shares with them, and its RPC server."""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from meander.membership.addresses import is_everywhere
from meander.membership.certificate_expiry import expiry_problems
from meander.membership.fence import Fence
from meander.reconfigure.agent.agent import Agent
from meander.reconfigure.agent.serving.peers import PeerDirectory
from meander.reconfigure.agent.serving.replication import Replication
from meander.reconfigure.agent.serving.request_handler import AgentRequestHandler, Order
from meander.run.channels.flight.client import ClientTls
from meander.run.channels.flight.server import FlightServer, Serve
from meander.run.channels.kafka.broker import Broker
from meander.run.channels.kafka.exchange import KafkaExchange


@dataclass(frozen=True, slots=True)
class ListenOptions:
    """The listening address of a host, and the address at which others reach it."""

    listen: str = "127.0.0.1:0"
    address: str | None = None
    certificate: tuple[bytes, bytes] | None = None
    authority: bytes | None = None
    """Signed everybody's certificates, where there are some."""
    broker: str = ""
    """The Kafka broker that it shares with hosts that use the same one."""
    broker_settings: Mapping[str, str] = field(default_factory=dict)
    mutual_tls: bool = False
    """Whether clients have to show a certificate of the authority."""
    reached_at: str | None = None
    """The machine's name for others, where the port is any; it is found out if not given."""

    @property
    def tls(self) -> ClientTls:
        return ClientTls(self.authority, self.certificate)

    @property
    def scheme(self) -> str:
        return "grpc+tls" if self.certificate else "grpc"

    def beside(self) -> ListenOptions:
        """Those of another host on this machine: at any free port of the same address."""
        named = None if self.address is None else self.address.rsplit("://", 1)[-1].rsplit(":", 1)[0]
        return replace(self, listen=f"{self.listen.rsplit(':', 1)[0]}:0", address=None, broker="", reached_at=named)


class AgentEndpoint:
    """Made before the host takes up what ran, opened when others may ask, closed before the host stops."""

    def __init__(
        self,
        name: str,
        key: str,
        agent: Agent,
        options: ListenOptions,
        former_key: Callable[[], str | None] = lambda: None,
    ) -> None:
        """`key` proves to this host who asks; `former_key` does while the coordinator is of the version before."""
        self._name, self._key, self._agent, self._options = name, key, agent, options
        self._former_key = former_key
        self.peers = PeerDirectory(agent.host.store, name, key, options.tls)
        kafka = None
        if options.broker:
            broker = Broker(agent.host.spark, options.broker, options.broker_settings)
            kafka = KafkaExchange(broker, name, key, self.peers.contact, former_key)
        agent.remote_channels.connect(self.peers.client_for, kafka)
        self.replication = Replication(agent.host.store)
        agent.host.troubles.append(self.replication.problems)
        if options.certificate is not None:
            agent.host.troubles.append(partial(expiry_problems, options.certificate[0]))
        self._server: FlightServer | None = None

    def open(
        self,
        fence: Fence | None = None,
        *,
        world: Callable[[Mapping[str, Any]], None] = lambda told: None,
        changed: Callable[[], None] = lambda: None,
        facts: Callable[[], dict[str, Any]] = dict,
        orders: Mapping[str, Order] | None = None,
        serve_kept: Serve | None = None,
        vote: Order | None = None,
    ) -> None:
        """Serves other hosts, and with a fence the coordinator: see `AgentRequestHandler`."""
        options, pair = self._options, self._options.certificate
        handler = AgentRequestHandler(
            self._name,
            self._agent,
            self.peers,
            self.replication,
            fence,
            world=world,
            changed=changed,
            facts=facts,
            orders=orders,
            serve_kept=serve_kept,
            vote=vote,
        )
        location = f"{options.scheme}://{options.listen}"
        self._server = FlightServer(
            self._agent.host.store,
            handler,
            self._key,
            location,
            [pair] if pair else [],
            handler.replica,
            clients_signed_by=options.authority if options.mutual_tls else None,
            is_revoked=self.peers.is_revoked,
            former_key=self._former_key,
        )

    @property
    def address(self) -> str:
        """Where others reach it: as configured, else by the machine's name if it listens everywhere."""
        assert self._server is not None, "the endpoint was not opened"
        listen = self._options.listen
        here = socket.getfqdn() if is_everywhere(listen) else listen.rsplit(":", 1)[0]
        shown = self._options.address or f"{self._options.reached_at or here}:{self._server.port}"
        return shown if "://" in shown else f"{self._options.scheme}://{shown}"

    def close(self) -> None:
        self.replication.stop()
        if self._server is not None:
            self._server.shutdown()
        self._agent.stop()
        self.peers.close()
