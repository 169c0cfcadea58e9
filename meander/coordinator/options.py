"""The options of a coordinator, each with its default, checked before anything starts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from meander.adapt.mobility.settings import PredictionSettings
from meander.adapt.setting_layers import DEFAULTS, AdaptationPolicy, checked
from meander.adapt.settings import BY_DEMANDS
from meander.coordinator.security.tls import Tls
from meander.deploy.protocols import Protocol, protocol
from meander.membership.addresses import check_clear_text, check_listen
from meander.membership.protocol import HEARTBEAT_MS, SESSION_TIMEOUT_MS
from meander.model.errors import InputError
from meander.model.expressions.allowed_functions import NONE, AllowedFunctions
from meander.model.streams import Stream
from meander.place.amenders.count import check_amenders
from meander.place.nova.queries.settings import NovaQuerySettings
from meander.reconfigure.state import state_strategy
from meander.run.channels.budgets import ChannelBudget
from meander.run.connectors import sink_for, source_for
from meander.run.connectors.base import SinkBinding, SinkConnector, SourceConnector, Surroundings
from meander.run.rebinding.options import USUAL, rebinding_by
from meander.run.store.journal import Durability, durability_by


@dataclass(frozen=True)
class CoordinatorOptions:
    """The options of a coordinator."""

    mechanism: str = BY_DEMANDS
    """The mechanism that queries begin with; chosen from the demands of each unless one is named."""
    protocol: str = "isqd"
    amenders: int | None = None
    """Threads that place at the same time. None: one for each core, where the mechanism's solver leaves the lock."""
    slots: int = 1
    rebinding: str = USUAL
    """The policy by which fragments change slots when there are several, or `off`."""
    durability: str = Durability.PROCESS.value
    """The failures that what was acknowledged survives: the end of the process, or a power failure (`disk`)."""
    channel_budget: str | None = None
    """The most that may wait in one channel of its own host, such as 500MB."""
    overflow: str | None = None
    """The policy beyond that: `block`, `spill` or `drop_oldest`."""
    emulate: bool = False
    """Whether tuples are delayed by the latency of their path."""
    adapt: bool = True
    """Whether mechanisms are switched when demands are not met; otherwise that is only suggested in the log."""
    adaptation: Mapping[str, Any] = field(default_factory=dict)
    """Settings of the adaptation loop, by their names in the settings file; `queries` has those of single ones."""
    host: str = "127.0.0.1"
    port: int = 8420
    """0 for any that is free."""
    url: str | None = None
    """The address at which sites find it, if that is not where it listens."""
    first: Mapping[str, str] = field(default_factory=dict)
    """Queries (name to SQL) that run in a new directory before the first tuple is taken in."""
    source_of: Callable[[Stream, Surroundings], SourceConnector] = source_for
    sink_of: Callable[[SinkBinding, Surroundings], SinkConnector] = sink_for
    samples: Sequence[tuple[str, str]] = ()
    """Titles and texts of queries that the page offers."""
    heartbeat_ms: int = HEARTBEAT_MS
    """The interval of heartbeats."""
    session_timeout_ms: int = SESSION_TIMEOUT_MS
    """A site that is not heard of for so long is away."""
    tls: Tls | None = None
    """The certificate to show; without it the API is plain HTTP."""
    rpc_listen: str | None = None
    """Host and port at which sites pull channels from here; any free port beside the API if it is None."""
    rpc_address: str | None = None
    """The address at which sites reach it, if that is not where it listens."""
    ca: Path | None = None
    """The authority that signs the certificates of sites, if they have some."""
    broker: str = ""
    """The Kafka broker that the own host shares with sites that use the same one."""
    broker_settings: Mapping[str, str] = field(default_factory=dict)
    """More settings of Kafka's clients."""
    state: str | None = None
    """The strategy by which state moves, if not the protocol's."""
    nova: NovaQuerySettings = field(default_factory=NovaQuerySettings)
    """How queries that Nova places are split, and what nodes keep free of them."""
    prediction: PredictionSettings = field(default_factory=PredictionSettings)
    """The prediction of mobile nodes' moves, and its bounds."""
    mutual_tls: bool = False
    """Whether clients of the API and other sites have to show a certificate of the authority."""
    oidc: Mapping[str, Any] | None = None
    """The section about the identity provider whose tokens are taken beside our own."""
    insecure: bool = False
    """Whether others may reach it without TLS, such as behind a proxy that has it."""
    functions: AllowedFunctions = NONE
    """The user functions that queries may apply: each is a module that this process imports."""
    validate: bool = False
    """Whether the running fragments are compared with the catalog after every change; a difference is a problem in
    `health`."""

    @property
    def chosen_protocol(self) -> Protocol:
        return protocol(self.protocol)

    def check(self) -> None:
        self.policy()
        protocol(self.protocol)
        if self.state is not None:
            state_strategy(self.state)
        check_amenders(self.amenders)
        rebinding_by(self.rebinding, self.slots)
        durability_by(self.durability)
        ChannelBudget.of(self.channel_budget, self.overflow)
        if self.rpc_listen is not None:
            check_listen(self.rpc_listen, "rpc_listen")
        if self.tls is None:
            for host in (self.host, (self.rpc_listen or f"{self.host}:0").rsplit(":", 1)[0]):
                check_clear_text(host, f"a coordinator at {host or 'all addresses'}", self.insecure)
        if self.mutual_tls and (self.tls is None or self.ca is None):
            raise InputError("mutual_tls needs certificate, key and ca: the authority whose certificates are let in")
        if self.rpc_address is not None and not self.rpc_address.startswith(("grpc://", "grpc+tls://")):
            raise InputError(
                f"rpc_address {self.rpc_address!r} is no address that sites can use; write grpc://host:port, or "
                "grpc+tls://host:port with a certificate"
            )

    def policy(self) -> AdaptationPolicy:
        """The settings of the adaptation loop, with those of single queries; raises for one that is not allowed."""
        checked({"first": self.mechanism})
        file = dict(self.adaptation)
        of_queries = file.pop("queries", {})
        return AdaptationPolicy(replace(DEFAULTS, first=self.mechanism, act=self.adapt), file, of_queries)
