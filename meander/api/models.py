"""The bodies of requests and answers, for the OpenAPI description. Answers are made by the read model; tests check
that they fit these."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from meander.coordinator.change_reader import MOST_EVENTS
from meander.coordinator.request_values import LARGEST_WHOLE, LONGEST_NAME, LONGEST_TEXT

Name = Annotated[str, Field(min_length=1, max_length=LONGEST_NAME)]

Size = Annotated[int, Field(ge=0, lt=2**63)]


class Input(BaseModel):
    """A body of a request: unknown fields are errors."""

    model_config = ConfigDict(extra="forbid", strict=True)


class ProblemDetails(BaseModel):
    type: str
    title: str
    status: int
    detail: str = Field(description="One sentence for people: what is wrong, and what to do.")
    instance: str


class Stages(BaseModel):
    stages: dict[str, int] = Field(
        description="By how their next batch runs: `prepared`, `operator_at_a_time`, `plain` or `refused`."
    )
    refused: dict[str, int] = Field(description="Those whose plans cannot be prepared, by the reason.")


class StandbyStore(Input):
    """How far a copy of a store is."""

    has: dict[Annotated[str, Field(pattern=r"^[0-9]{1,18}$")], Size] = Field(description="Bytes by segment.")
    incarnation: str = Field("", max_length=LONGEST_NAME)
    offer: str | None = Field(None, max_length=LONGEST_NAME, description="The last offer that it took as a whole.")
    checksum: int | None = Field(None, description="Of its newest segment, where it does not know the incarnation.")


class FollowRequest(Input):
    name: Name
    address: str = Field(max_length=300, description="Where sites find the standby once it acts.")
    term: int = Field(ge=0)
    round: int = Field(ge=0, description="The last one that arrived as a whole.")
    store: StandbyStore
    files: dict[str, Annotated[list[Size], Field(min_length=2, max_length=2)]] = Field(
        description="Sizes and times of its files, as they were told."
    )
    ledger: int = Field(ge=0, description="The version of its copy of the ledger.")


class StandbyStatus(BaseModel):
    address: str
    silent_ms: int = Field(description="Since it last asked for what it lacks.")
    in_sync: bool = Field(description="Whether it has had everything, so that it can take over.")
    behind_bytes: int
    behind_ms: int


class Health(BaseModel):
    status: Literal["starting", "ok", "degraded", "stopping", "standby"] = Field(
        description="`ok` only if no host has a problem and no query is paused, waiting, stalled or violating."
    )
    problems: list[str] = Field(description="What is wrong, in words: of queries, the worst first, then of hosts.")
    queries: dict[str, int] = Field(description="How many queries there are in each condition.")
    version: str
    uptime_s: float
    role: Literal["active", "standby"]
    standby: StandbyStatus | None = Field(description="The standby that follows this coordinator; null without one.")
    stages: Stages | None = Field(None, description="How the plans of the coordinator's own host run; null at first.")


class Link(BaseModel):
    a: str
    b: str
    latency_ms: float
    bandwidth_mbps: float | None = Field(None, description="Left out when unlimited.")
    directed: bool = Field(False, description="True for a link from a to b only.")


class Node(BaseModel):
    name: str
    kind: Literal["sensor", "edge", "cloud"]
    capacity: int = Field(description="Operators that it can hold.")
    used: int = Field(description="Operators that it holds.")
    alive: bool = Field(description="False for a node that left.")
    mobile: bool
    capacity_tps: float | None = Field(None, description="Tuples a second it can take; left out when unlimited.")
    power_w: float | None = Field(
        None, description="Watts that it draws while it runs something; left out when unknown."
    )
    price_per_h: float | None = Field(None, description="What an hour costs in which it does, if known.")
    x: float | None = Field(None, description="Longitude.")
    y: float | None = Field(None, description="Latitude.")
    comes_back_with: list[Link] | None = Field(None, description="Of a node that left: the links that it had.")


class Topology(BaseModel):
    version: int
    nodes: list[Node]
    links: list[Link]


class Position(BaseModel):
    x: float
    y: float


class ExpectedMove(BaseModel):
    """A mobile node, and where it goes next."""

    node: str
    at: str = Field(description="The node that it is linked to.")
    next: str | None
    probability: float | None
    in_s: float | None = Field(description="When; 0 if it is overdue, null if nothing is known about it.")
    prepared_for: str | None = Field(description="The move for which state is sent ahead.")
    ready: bool = Field(description="Whether all that is sent ahead is there.")
    operators: list[int] = Field(description="Operators whose state is sent ahead.")
    bytes: int


class MoveOutcome(BaseModel):
    """A move that was expected, and what happened."""

    node: str
    at_ms: int
    from_: str = Field(alias="from")
    to: str | None = Field(description="Null if it has not moved in time.")
    expected: str
    probability: float
    outcome: str = Field(description="`hit`, `miss` or `expired`.")
    operators: list[int] = Field(description="Operators whose state was sent ahead.")
    bytes: int


class Predictions(BaseModel):
    """Expected moves, and what came of earlier ones since the process began."""

    mode: str
    outcomes: dict[str, int] = Field(description="Moves by `hit`, `miss` and `expired`.")
    used_bytes: int
    wasted_bytes: int
    recent: list[MoveOutcome] = Field(description="The last ones, newest first.")
    trials: int = Field(description="Placements tried on a copy.")
    trial_s: float
    nodes: list[ExpectedMove]


class Stream(BaseModel):
    name: str
    schema_: dict[str, str] = Field(alias="schema")
    event_time: str
    nodes: list[str]
    rate_tps: float


class SinkTarget(BaseModel):
    name: str
    node: str


class Sample(BaseModel):
    title: str
    text: str


class Move(BaseModel):
    operator: int
    query: str | None = Field(description="One of the queries that it serves.")
    queries: list[str]
    from_: str | None = Field(alias="from")
    to: str | None
    cause: str


class Batch(BaseModel):
    batch: int | None = Field(description="Its number; null in a dry run.")
    moves: list[Move]
    fragments: int = Field(description="Fragments whose operators are placed anew.")
    rerouted: int = Field(description="Edges that only take another way.")
    reroutes: dict[str, int] = Field(
        default_factory=dict, description="Why edges only take another way, with how many do."
    )
    unplaced: dict[str, str] = Field(description="Operators without a place, with the reason.")


class Events(Input):
    events: list[dict[str, Any]] = Field(
        min_length=1,
        max_length=MOST_EVENTS,
        description="Objects as in the lines of an event file; `at_ms` may be left out.",
        examples=[[{"event": "link_removed", "source": "train-1", "target": "station-1"}]],
    )


class NodeNames(Input):
    nodes: list[Name] = Field(min_length=1, max_length=MOST_EVENTS, description="Nodes that were removed.")


class Forgotten(BaseModel):
    forgotten: list[str]


class EventOutcome(BaseModel):
    batch: int
    state: Literal["accepted", "applied"]
    moves: int | None = None
    rerouted: int | None = None
    unplaced: int | None = None
    fragments: int | None = None
    failed: str | None = Field(None, description="Why it could not be applied although it was accepted.")


class RecordedEvent(BaseModel):
    seq: int
    at_ms: int
    event: dict[str, Any]
    outcome: EventOutcome


class Demand(BaseModel):
    text: str
    met: bool | None = Field(description="Null while nothing is known.")
    value: float | None = None
    unit: str | None = None


class LatencyPercentiles(BaseModel):
    p50: float | None
    p95: float | None
    p99: float | None


class Query(BaseModel):
    id: str
    text: str
    status: Literal["running", "idle", "violating", "stalled", "waiting", "paused", "stopping"] = Field(
        description="Its condition, the worst that is known; docs/operations.md says what each means."
    )
    reason: str | None = Field(None, description="Why it is in that condition; left out while it is running.")
    mechanism: str
    chosen: str = Field(description="Why it has this mechanism; empty if that is not known.")
    demands: list[Demand]
    operators: int
    fragments: int
    results: int = Field(description="Rows that its sink has taken.")
    rate_tps: float
    latency_ms: LatencyPercentiles = Field(description="Event-time latency of the last seconds.")


class Operator(BaseModel):
    id: int
    kind: str
    label: str
    node: str | None
    fragment: int | None
    slot: int | None
    shared: bool = Field(description="Whether several queries use it.")
    pinned: bool = Field(description="Whether it was put there by hand.")
    queries: list[str]
    why: str = Field(description="Why it is where it is, or has no place.")


class Dag(BaseModel):
    operators: list[Operator]
    edges: list[tuple[int, int]]


class QueryWithDag(Query):
    dag: Dag


class Results(BaseModel):
    rows: list[dict[str, Any]]
    total: int


SettingValue = bool | float | str | list[float | str]


class Submission(Input):
    text: str = Field(min_length=1, max_length=LONGEST_TEXT, description="One SELECT ... INTO sink [DEMAND ...].")
    name: Name | None = Field(None, description="What to call it, unless the text says so with CREATE QUERY.")
    mechanism: Name | None = Field(None, description="What places it at first; otherwise its demands decide.")
    adaptation: dict[str, SettingValue] = Field(
        default_factory=dict, description="Adaptation settings of its own.", examples=[{"stay": "1min"}]
    )


class Stopped(BaseModel):
    id: str
    status: Literal["stopping"]


class Demands(Input):
    demands: list[Annotated[str, Field(max_length=1000)]] = Field(
        max_length=100, description="As after DEMAND in SQL; an empty list for none.", examples=[["latency < 1 s"]]
    )


class Producers(BaseModel):
    stream: str
    nodes: list[str]


class Pair(BaseModel):
    left: str = Field(description="The node of a producer of the left stream.")
    right: str
    has_room: bool = Field(True, description="Whether a node has room for it; it is tried again while none has.")


class JoinSides(BaseModel):
    join: str = Field(description="The name under which its results are a producer for another join.")
    left: Producers
    right: Producers


class JoinMatrix(BaseModel):
    query: str
    joins: list[JoinSides]
    pairs: list[Pair]


class Pairs(Input):
    pairs: list[Annotated[list[Name], Field(min_length=2, max_length=2)]] = Field(
        max_length=100_000, description="All pairs of producers that join, left and right.", examples=[[["s0", "s2"]]]
    )


class Switch(Input):
    mechanism: Name
    protocol: Name | None = Field(None, description="How it moves; left out: as the query's adaptation settings say.")


class Transition(BaseModel):
    query: str
    from_: str = Field(alias="from")
    to: str
    moves: int
    protocol: str


class PredictedMove(BaseModel):
    operator: int
    kind: str
    way: Literal["with state", "beside", "at once"]
    why: str
    state_bytes: int
    mbps: float | None = Field(description="Bandwidth on the route of its state; null where it is not limited.")
    transfer_s: float = Field(description="How long its state would travel.")
    window_s: float | None = Field(
        description="How long the old one would answer what had begun; null where that cannot be told."
    )


class TransitionPrediction(BaseModel):
    protocol: str
    seconds: float = Field(description="From the decision to the last effect, waiting included.")
    bytes: int
    overlap_s: float = Field(description="Of that, while operators run at both places.")
    stop_s: float = Field(description="Of that, while operators that move with their state stand still.")
    operators: list[PredictedMove] | None = None


class Switched(BaseModel):
    transition: Transition
    predicted: TransitionPrediction
    protocols: list[TransitionPrediction] | None = Field(None, description="In a dry run: all there are.")


class MoveRequest(Input):
    operator: int = Field(ge=0, le=LARGEST_WHOLE, description="Its number, as in a query's dag.")
    node: Name


class ResumeRequest(Input):
    name: Name | None = Field(
        default=None,
        description="A stream, a query (its sink bindings), or such as `fragment 7`; everything if not given.",
    )


class Resumed(BaseModel):
    where: str = Field(description="A site, or `home` for the coordinator's own host.")
    resumed: list[str]
    problem: str | None = Field(description="Why the site could not be told.")


class Difference(BaseModel):
    where: str = Field(description="`catalog`, `deployment`, `host` for the coordinator's own, or a site.")
    what: str


class Examination(BaseModel):
    differences: list[Difference] = Field(description="How what runs differs from the catalog; empty when all is well.")
    operators: int
    fragments: int
    channels: int
    under_way: int = Field(description="Changes that were left out, because they are on their way.")
    unasked: dict[str, str] = Field(description="Sites that could not be asked, with the reason.")


class Placement(BaseModel):
    operator: int
    label: str
    kind: str
    queries: list[str]
    node: str | None
    pinned: bool = Field(description="Whether it was put there by hand.")
    why: str


class Fragment(BaseModel):
    id: int
    version: int
    node: str
    slot: int | None
    operators: list[int]
    queries: list[str]
    pending: int
    state_bytes: int
    paused: str | None


class Channel(BaseModel):
    id: int
    from_: int = Field(alias="from")
    to: int
    path: list[str]
    cut: bool
    waiting: int


class Deployment(BaseModel):
    fragments: list[Fragment]
    channels: list[Channel]


class Phases(BaseModel):
    placement: float | None
    contexts: float | None
    markers: float | None
    state: float | None


class OperatorMove(BaseModel):
    operator: int
    from_: str | None = Field(alias="from")
    to: str | None


class Reconfiguration(BaseModel):
    number: int
    began_ms: int
    ended_ms: int | None
    cause: str
    phases_ms: Phases
    fragments: int
    moves: list[OperatorMove]
    state_bytes: int
    pause_ms: float | None = Field(description="How long the fragments it replaced had stopped.")
    status: Literal["under_way", "committed", "aborted"]
    reason: str | None = None


class Decision(BaseModel):
    model_config = ConfigDict(extra="allow")

    at_ms: int
    query: str
    trigger: str
    action: str
    from_: str = Field(alias="from")
    to: str | None
    reason: str
    predicted: dict[str, Any] = Field({}, description="What a transition was predicted to take, by operator too.")
    took: dict[str, Any] = Field({}, description="What it took, with what was predicted.")


class AdaptationSetting(BaseModel):
    name: str
    value: SettingValue
    source: str = Field(description="Where the value comes from, such as `default` or `set at run time`.")
    default: SettingValue
    allowed: str
    choices: list[str] = Field(description="The values that there are; empty where they cannot be listed.")
    about: str
    one_query: bool = Field(description="Whether it can differ from query to query.")


class AdaptationSettings(BaseModel):
    query: str | None = Field(description="Whose settings these are; null for those of all queries.")
    settings: list[AdaptationSetting]
    queries_with_own: list[str] = Field(description="Queries that have settings of their own.")
    reset: list[str] | None = Field(None, description="The settings that were taken back.")


class ChangedSettings(Input):
    settings: dict[Name, SettingValue] = Field(
        min_length=1, description="New values by name.", examples=[{"selector": "thompson", "stay": "1min"}]
    )


class Needs(BaseModel):
    cost_space: bool
    most_operators: int | None


class Mechanism(BaseModel):
    name: str
    exchanged_bytes: dict[str, int] = Field(
        description="Bytes since the coordinator started, by part: placement, cost_space, control, state."
    )
    optimises: list[str]
    needs: Needs
    summary: str
