"""A site's desk: what the coordinator orders is done here, and what other sites may have is decided here."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

from meander.membership.fence import Fence, FencedError
from meander.membership.protocol import FIRST_PROTOCOL, PROTOCOL, Epoch
from meander.model.errors import InputError, unknown
from meander.model.ids import ChannelId, OperatorId
from meander.reconfigure.agent import Agent
from meander.reconfigure.part import Part
from meander.reconfigure.peers import PeerDirectory
from meander.run.channels.flight.client import FlightClient
from meander.run.channels.flight.server import Chunks, PullRequest
from meander.run.reporting.inventory import take_inventory
from meander.run.resuming import resume

_log = logging.getLogger(__name__)
Order = Callable[[Mapping[str, Any]], Any]


class AgentRequestHandler:
    """Implements `Desk` for a site, or for the coordinator's own host, which gets no orders from outside."""

    def __init__(
        self,
        name: str,
        sharing: Agent,
        contacts: PeerDirectory,
        fence: Fence | None = None,
        *,
        world: Callable[[Mapping[str, Any]], None] = lambda told: None,
        changed: Callable[[], None] = lambda: None,
        facts: Callable[[], dict[str, Any]] = dict,
    ) -> None:
        """`world` is told of streams and sinks, `changed` after an effect; `facts` are told with every `hello`."""
        self.name, self.sharing, self.contacts = name, sharing, contacts
        self._fence, self._world, self._changed, self._facts = fence, world, changed, facts
        self._orders: dict[str, Order] = {
            "hello": self._hello,
            "peers": self._peers,
            "world": self._take_world,
            "prepare": self._prepare,
            "mark": lambda told: self.sharing.mark(int(told["number"])),
            "look": lambda told: {str(n): self.sharing.look(int(n)) for n in told["numbers"]},
            "fetch": lambda told: self.sharing.fetch(int(told["number"]), told),
            "effect": self._effect,
            "abort": lambda told: self.sharing.abort(int(told["number"])),
            "ways": self._ways,
            "inventory": lambda told: take_inventory(sharing.host.store, sharing.host.routing).to_json(),
            "resume": lambda told: resume(
                self.sharing.host, told.get("name"), [OperatorId(o) for o in told.get("operators", ())]
            ),
        }

    # ---------------------------------------------------------------- for other sites

    def may_pull(self, reader: str, via: str, channel: ChannelId) -> bool:
        return self.sharing.may_pull(reader, via, channel)

    def publish(self, reader: str, asked: PullRequest) -> bool:
        kafka = self.sharing.kafka
        return kafka is not None and kafka.publish(reader, asked)

    def is_given_away(self, channel: ChannelId) -> bool:
        return self.sharing.is_given_away(channel)

    def state(self, reader: str, via: str, number: int, handover: int) -> tuple[Chunks, list[int], int]:
        return self.sharing.state(reader, via, number, handover)

    def asker(self, site: str) -> FlightClient:
        return self.contacts.asker(site)

    # ---------------------------------------------------------------- for the coordinator

    def order(self, action: str, body: Mapping[str, Any]) -> Any:
        """Carries an order out. One of a coordinator that is not the newest is refused."""
        if self._fence is None:
            raise InputError("this is the coordinator's own host; it takes no orders from outside")
        if (spoken := int(body.get("protocol", FIRST_PROTOCOL))) != PROTOCOL:
            raise InputError(
                f"the coordinator speaks version {spoken} of the protocol, this site {PROTOCOL}; update one"
            )
        try:
            self._fence.accept(Epoch.of_json(body))
        except FencedError as error:
            raise InputError(str(error)) from None
        if action not in self._orders:
            raise unknown("order", action, self._orders)
        return self._orders[action](body)

    def _hello(self, told: Mapping[str, Any]) -> dict[str, Any]:
        courses = self.sharing.courses
        return {
            "site": self.name,
            "shares": {str(n): self.sharing.look(n)["phase"] for n in list(courses)},
            **self._facts(),
        }

    def _peers(self, told: Mapping[str, Any]) -> None:
        self.contacts.learn(told["peers"])

    def _take_world(self, told: Mapping[str, Any]) -> None:
        self._world(told)

    def _prepare(self, told: Mapping[str, Any]) -> None:
        """Everything under way that the coordinator does not know of any more is taken back before."""
        share = Part.from_json(told["share"])
        self.sharing.abort_forgotten(share.number, {int(n) for n in told["open"]})
        self.sharing.prepare(share)

    def _ways(self, told: Mapping[str, Any]) -> None:
        self.sharing.reroute(told["channels"], (Epoch.of_json(told).number, int(told.get("turn", 0))))

    def _effect(self, told: Mapping[str, Any]) -> None:
        self.sharing.effect(int(told["number"]), told)
        self._changed()
