"""The messages between sites and the coordinator, for the OpenAPI description."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

from meander.api.models import Input, Name
from meander.coordinator.request_values import LARGEST_TIME, LARGEST_WHOLE
from meander.membership.protocol import FIRST_PROTOCOL

Text = Annotated[str, Field(min_length=1, max_length=500)]
Time = Annotated[int, Field(ge=0, le=LARGEST_TIME)]


class SiteSeen(Input):
    epoch: int = Field(ge=0, le=LARGEST_WHOLE)
    coordinator: Name


class SiteLink(Input):
    target: Name
    latency_ms: float = Field(1.0, ge=0, allow_inf_nan=False)
    bandwidth_mbps: float | None = Field(None, ge=0, allow_inf_nan=False, description="Left out when unlimited.")


class SiteNode(Input):
    name: Name
    kind: Literal["sensor", "edge", "cloud"] | None = Field(None, description="For a node that the topology lacks.")
    slots: int | None = Field(None, ge=0, le=LARGEST_WHOLE)
    capacity_tps: float | None = Field(None, ge=0, allow_inf_nan=False)
    memory_mb: float | None = Field(None, ge=0, allow_inf_nan=False)
    power_w: float | None = Field(None, ge=0, allow_inf_nan=False)
    price_per_h: float | None = Field(None, ge=0, allow_inf_nan=False)
    lon: float | None = Field(None, allow_inf_nan=False)
    lat: float | None = Field(None, allow_inf_nan=False)
    mobile: bool | None = None
    links: list[SiteLink] | None = Field(None, max_length=100, description="Instead of the links that it had.")


class Registration(Input):
    protocol: int = Field(ge=0, le=LARGEST_WHOLE)
    site: Name
    instance: Name
    version: Name
    now_ms: Time = Field(description="What the site's clock says.")
    address: Text = Field(description="Where other sites reach its channels.")
    broker: Text | None = Field(None, description="The Kafka broker that it uses, if it uses one.")
    nodes: list[SiteNode] = Field(max_length=1000)
    seen: SiteSeen | None = Field(None, description="The newest coordinator that the site has met.")


class Registered(BaseModel):
    protocol: int
    epoch: int
    coordinator: str
    session: str
    now_ms: int
    heartbeat_ms: int
    session_timeout_ms: int
    nodes: list[str]


class SiteMeasures(Input):
    nodes: dict[Name, dict[str, Any]] = Field(default_factory=dict)
    host: dict[str, Any] = Field(default_factory=dict)


class Heartbeat(Input):
    session: Name
    protocol: int = Field(FIRST_PROTOCOL, ge=0, le=LARGEST_WHOLE)
    now_ms: Time = Field(description="What the site's clock says.")
    measures: SiteMeasures = Field(default_factory=SiteMeasures)
    seen: SiteSeen | None = None


class SitePeer(BaseModel):
    site: str
    address: str


class StandbyTerm(BaseModel):
    term: int = Field(description="No vote is given to a standby of an older one.")
    coordinators: list[str] = Field(description="The addresses of the coordinator and its standby.")


class Heard(BaseModel):
    epoch: int
    coordinator: str
    now_ms: int
    state: Literal["here", "draining", "left"]
    peers: dict[str, SitePeer] | None = Field(None, description="Who runs which node, after it changed.")
    standby: StandbyTerm | None = Field(None, description="What sites have to know of the standby; kept by them.")
    speaks: int | None = Field(None, description="The newest version of the site protocol that the coordinator speaks.")


class DrainRequest(Input):
    session: Name
    seen: SiteSeen | None = None


class RestoreRequest(Input):
    instance: Name = Field(description="Of the directory with which the site starts.")


class RestoreAnswer(BaseModel):
    restore: dict[str, Any] | None = Field(description="Where the site gets its store from; null if it has it.")


class ForgetAnswer(BaseModel):
    site: str
    goes_on_at: str | None = Field(description="The site whose replica goes on with what ran there.")
    lost: list[str] = Field(description="What could not be brought back, in words.")


class KeeperLag(BaseModel):
    keeper: str
    state: Literal["in step", "behind", "incomplete", "serving"]
    behind_bytes: int
    behind_ms: int


class ReplicasShown(BaseModel):
    keepers: list[str] = Field(description="The sites that keep replicas of its store.")
    lags: list[KeeperLag] = Field(description="How far each of them is, and whether it goes on in the site's place.")
    stands_in: str | None = Field(description="The site whose replica goes on in its place.")
    is_forgotten: bool
    problem: str | None


class SiteShown(BaseModel):
    site: str
    state: Literal["expected", "here", "draining", "away", "left"]
    nodes: list[str]
    address: str | None = None
    broker: str | None = None
    version: str | None = None
    protocol: int | None = Field(None, description="The version of the site protocol that it speaks here.")
    since_ms: int | None = None
    clock_ms: int | None = Field(None, description="How far its clock was behind when it was last heard of.")
    silent_ms: int | None = Field(None, description="Since it was last heard of.")
    measures: dict[str, Any] | None = None
    replicas: ReplicasShown | None = None


class TokenRequest(Input):
    site: Name
    nodes: list[Name] = Field(min_length=1, max_length=1000, description="Names, or patterns with * and ?.")
    renew: bool = Field(False, description="Whether to replace a token that the site has.")


class TokenCreated(BaseModel):
    site: str
    nodes: list[str]
    token: str = Field(description="Shown once.")


class TokenShown(BaseModel):
    site: str
    nodes: list[str]
    made_ms: int


class AuditEntry(BaseModel):
    number: int
    at_ms: int
    who: str
    did: str
    about: str
    outcome: str
