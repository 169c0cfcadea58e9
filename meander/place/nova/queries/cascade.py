"""A query whose joins read each other: a stage for each, placed one after another, inputs first.

Results of a stage come together at its hub, which the stage above takes for a source. Hubs are where the virtual places
of all joins, found together, want them (`multiway`). A hub moves when its node is gone, or when another one has become
clearly nearer; then its own stage and the one above are placed anew, and no other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from meander.model.errors import InputError, unknown
from meander.model.events import ChangeEvent
from meander.model.ids import NodeId, OperatorId, QueryId
from meander.model.plan import Query
from meander.model.signature import Signature
from meander.place.catalog import Catalog
from meander.place.changelog import ChangeLog
from meander.place.costspace.maintenance import follow
from meander.place.nova.improvement.links import LinkLoad, link_loads
from meander.place.nova.queries.booking import Booking
from meander.place.nova.queries.join_parts import Running
from meander.place.nova.queries.multiway import hubs
from meander.place.nova.queries.partitioned_query import PartitionedQuery, flow_of, touched
from meander.place.nova.queries.settings import NovaQuerySettings
from meander.place.nova.queries.shape import JoinShape, stages_of
from meander.place.nova.queries.wiring import Wiring
from meander.place.nova.running.reoptimise import Reoptimiser

NEARER = 0.75
"""A hub moves to a node when the latency to all that it talks to is less than this share of the present one."""


class Switchover:
    """A running query's way to Nova and away from it. A query with several joins stays where it is."""

    def __init__(self, join: PartitionedQuery, stages: int) -> None:
        self.join, self.stages = join, stages

    def check(self) -> None:
        """Raises when the query cannot go over while it runs."""
        if self.stages > 1:
            raise InputError(
                f"query {self.join.shape.query.id!r} has {self.stages} joins, so it cannot go to Nova or leave it "
                "while it runs; stop it, and submit it with the other mechanism"
            )

    @property
    def is_away(self) -> bool:
        """Whether another mechanism places the query now."""
        return self.join.is_handed_over

    @property
    def is_on_its_way(self) -> bool:
        """Whether Nova is still taking it over from another mechanism."""
        return self.join.wiring.legacy is not None

    @property
    def whole(self) -> OperatorId | None:
        """The join that another mechanism places."""
        parts = self.join.wiring.parts
        return next((r.operator for r in parts if r.part.is_whole and r.operator is not None), None)


class JoinMatrix:
    """The producers that join in a query, by name; another of its joins is a producer of its own name."""

    def __init__(self, query: QueryId, stages: Sequence[PartitionedQuery]) -> None:
        self.query, self.stages = query, stages

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """The producers that join, by the names of their nodes; another join is a producer of its own name."""
        return [_named(stage, pair) for stage in self.stages for pair in stage.pairs]

    @property
    def producers(self) -> list[dict[str, Any]]:
        """For each join the streams of its two sides, and who produces them."""
        found: list[dict[str, Any]] = []
        for number, stage in enumerate(self.stages):
            sides = {
                name: {"stream": side.source.stream, "nodes": list(_numbers(stage, place))}
                for place, (name, side) in enumerate(zip(("left", "right"), stage.shape.sides, strict=True))
            }
            found.append({"join": f"join{number + 1}", **sides})
        return found

    @property
    def without_room(self) -> list[tuple[str, str]]:
        """Those of them that fit nowhere at the moment."""
        return [_named(stage, pair) for stage in self.stages for pair in stage.without_room]

    def numbers(self, pairs: Iterable[tuple[str, str]]) -> dict[int, list[tuple[int, int]]]:
        """Pairs of producers by their numbers, for each stage that they are about; raises for names that no stage
        has."""
        found: dict[int, list[tuple[int, int]]] = {}
        for pair in pairs:
            stages = [number for number, stage in enumerate(self.stages) if _has(stage, pair)]
            if not stages:
                self._refuse(pair)
            if len(stages) > 1:
                names = " and ".join(f"join{number + 1}" for number in stages)
                raise InputError(f"pair {pair[0]}:{pair[1]} of query {self.query!r} is one of {names} alike")
            (number,) = stages
            one, other = (_numbers(self.stages[number], side) for side in (0, 1))
            found.setdefault(number, []).append((one[pair[0]], other[pair[1]]))
        if not found:
            raise InputError(f"query {self.query!r} needs at least one pair of producers; stop it to end it")
        return found

    def _refuse(self, pair: tuple[str, str]) -> None:
        """Raises for a pair that no stage has."""
        if len(self.stages) > 1:
            known = [f"{a}:{b}" for s in self.stages for a in _numbers(s, 0) for b in _numbers(s, 1)]
            raise unknown("pair of producers", f"{pair[0]}:{pair[1]}", known, "pairs")
        for number, side in enumerate(self.stages[0].shape.sides):
            names = _numbers(self.stages[0], number)
            if pair[number] not in names:
                raise unknown(f"producer of stream {side.source.stream!r}", pair[number], names, "producers")

    def change(self, pairs: Mapping[int, Iterable[tuple[int, int]]]) -> None:
        """These pairs from now on, for these stages. A new cut has to follow."""
        for number, each in pairs.items():
            self.stages[number].match(each)


class CascadedQuery:
    """One query in one catalog, with any number of joins. Nothing of it is in the plan before `start` or `restore`."""

    def __init__(
        self,
        catalog: Catalog,
        log: ChangeLog,
        query: Query,
        *,
        settings: NovaQuerySettings | None = None,
        shared: dict[Signature, OperatorId] | None = None,
        record: Mapping[str, Any] | None = None,
        fits: bool = False,
    ) -> None:
        """Places all joins, or takes up where `record` says they are."""
        self.catalog, self.query = catalog, query
        if catalog.space is None:
            follow(catalog, ())
        shapes = list(stages_of(query, catalog.streams, catalog.sinks))
        records = [None] * len(shapes) if record is None else records_of(record)
        if len(records) != len(shapes):
            raise InputError(f"query {query.id!r} has {len(shapes)} joins, but was recorded with {len(records)}")
        if record is None:
            nodes = hubs(catalog, shapes, _flows(catalog, shapes))
            names = [catalog.topology.name(node) for node in nodes]
        else:
            names = list(record.get("hubs") or [shapes[-1].sink_node])
        self.stages: list[PartitionedQuery] = []
        self.matrix = JoinMatrix(query.id, self.stages)
        shapes = [replace(shape, sink_node=name) for shape, name in zip(shapes, names, strict=True)]
        try:
            for shape, each in zip(shapes, records, strict=True):
                stage = PartitionedQuery(
                    catalog, log, shape, settings=settings, shared=shared, record=each, fits=fits, stages=self.stages
                )
                self.stages.append(stage)
                if record is None:
                    stage.book()
        finally:
            if record is None:
                self.end()

    # ---------------------------------------------------------------- looking

    @property
    def joins(self) -> PartitionedQuery:
        """The last join, which is the only one of most queries."""
        return self.stages[-1]

    @property
    def shape(self) -> JoinShape:
        return self.joins.shape

    @property
    def wiring(self) -> Wiring:
        return self.joins.wiring

    @property
    def switchover(self) -> Switchover:
        """The way of the query to Nova, and away from it, while it runs."""
        return Switchover(self.joins, len(self.stages))

    @property
    def bookings(self) -> list[Booking]:
        """The capacity that it takes at nodes."""
        return [stage.booking for stage in self.stages]

    @property
    def retired(self) -> list[Running]:
        """Parts that answer for the past only."""
        return [running for stage in self.stages for running in stage.wiring.retired]

    @property
    def running(self) -> list[Running]:
        """All parts, those that have retired among them."""
        return [running for stage in self.stages for running in stage.wiring.parts]

    @property
    def reoptimiser(self) -> Reoptimiser:
        """The last join as Nova places it."""
        return self.joins.reoptimiser

    @property
    def hubs(self) -> list[str]:
        """The nodes at which results of the joins come together; those of the last one at the sink."""
        return [stage.shape.sink_node for stage in self.stages]

    def exceeded(self) -> list[LinkLoad]:
        """Links that the query would load with more than they carry: none, unless a join stays that fits nowhere."""
        topology = self.catalog.topology
        loads = [load for s in self.stages for load in link_loads(s.reoptimiser.joins, topology, s.row_bytes)]
        return [load for load in loads if load.exceeded]

    # ---------------------------------------------------------------- beginning and ending

    def check(self) -> None:
        """Raises when some of it fits nowhere."""
        for stage in self.stages:
            stage.check()

    def start(self) -> None:
        """Adds the query to the plan."""
        for stage in self.stages:
            stage.start()

    def restore(self, record: Mapping[str, Any]) -> None:
        """Adds the query to the plan as it was recorded."""
        for stage, each in zip(self.stages, records_of(record), strict=True):
            stage.restore(each)

    def record(self) -> dict[str, Any]:
        """Where the joins are, as JSON values."""
        records = [stage.record() for stage in self.stages]
        if len(records) == 1:
            return records[0]
        operators = [operator for each in records for operator in each["cut"]["operators"]]
        return {"stages": records, "hubs": self.hubs, "cut": {"operators": operators}}

    def end(self) -> None:
        """Gives back what is booked."""
        for stage in self.stages:
            stage.end()

    # ---------------------------------------------------------------- changing

    def foresee(self, events: Sequence[ChangeEvent]) -> None:
        """Makes room at nodes that are about to leave. Before the events are applied."""
        for stage in self.stages:
            stage.foresee(events)

    def follow(self, events: Sequence[ChangeEvent]) -> None:
        """Works out the effects of events that have been applied, on what they touch only."""
        moved = self._gather(events) if len(self.stages) > 1 else set()
        for number, stage in enumerate(self.stages):
            if len(self.stages) > 1:
                stage.relocate(moved=number in moved)
            stage.follow(events)
            if len(self.stages) > 1:
                stage.book()

    def recut(self, cause: str, spent: Sequence[Running] = ()) -> bool:
        """Cuts the joins in the plan as Nova wants them now; says whether anything changes there."""
        changed = [stage.recut(cause, spent) for stage in self.stages]
        return any(changed)

    def unshare(self) -> None:
        """Lets ordinary queries have sources of their own."""
        for stage in self.stages:
            stage.wiring.operators.unshare()

    def _gather(self, events: Sequence[ChangeEvent]) -> set[int]:
        """Moves hubs whose node is gone or far; returns the stages whose results are wanted elsewhere from now on."""
        topology, nodes = self.catalog.topology, self._nodes()
        if not any(name in nodes for name in touched(events)) and all(map(self._is_there, self.stages[:-1])):
            return set()
        shapes = [stage.shape for stage in self.stages]
        wanted = hubs(self.catalog, shapes, [stage.output_tps for stage in self.stages])
        moved: set[int] = set()
        for number, (stage, node) in enumerate(zip(self.stages[:-1], wanted, strict=False)):
            if topology.name(node) != stage.shape.sink_node and (
                not self._is_there(stage) or self._length(number, node) < NEARER * self._length(number, None)
            ):
                stage.gather(topology.name(node))
                moved.add(number)
        return moved

    def _is_there(self, stage: PartitionedQuery) -> bool:
        """Whether results can come together where they do."""
        topology = self.catalog.topology
        node = topology.find(stage.shape.sink_node)
        return node is not None and topology.is_alive(node) and topology.reachable(node, self.wiring.sink_node)

    def _nodes(self) -> set[str]:
        """All nodes that the query has something to do with."""
        name = self.catalog.topology.name
        found = {node for stage in self.stages for _, node in stage.wiring.producers}
        return found | set(self.hubs) | {name(r.part.node) for r in self.running if not r.part.is_whole}

    def _length(self, number: int, hub: NodeId | None) -> float:
        """The latency from a stage's parts to a hub, and from there to the parts of the stage that reads it."""
        stage, space = self.stages[number], self.catalog.space
        assert space is not None
        at = stage.wiring.sink_node if hub is None else hub
        readers = [s for s in self.stages if any(side.below == number for side in s.shape.sides)]
        ends = {p.node for s in (stage, *readers) for p in s.wiring.active if self.catalog.topology.is_alive(p.node)}
        return sum(space.latency_ms(at, end) for end in ends)


def records_of(record: Mapping[str, Any]) -> list[Any]:
    """A record of each stage."""
    return list(record["stages"]) if "stages" in record else [record]


def _flows(catalog: Catalog, shapes: Sequence[JoinShape]) -> list[float]:
    """The rates of the stages' results, as far as they can be estimated."""
    found: list[float] = []
    for shape in shapes:
        given = [
            found[side.below]
            if side.below is not None
            else sum(catalog.source_rate_tps(side.source.stream, node) for node in side.nodes)
            for side in shape.sides
        ]
        found.append(flow_of(shape, given))
    return found


def _numbers(stage: PartitionedQuery, side: int) -> dict[str, int]:
    """The producers of one side by name."""
    return {stage.label(n): n for n, (place, _) in enumerate(stage.wiring.producers) if place == side}


def _has(stage: PartitionedQuery, pair: tuple[str, str]) -> bool:
    return pair[0] in _numbers(stage, 0) and pair[1] in _numbers(stage, 1)


def _named(stage: PartitionedQuery, pair: tuple[int, int]) -> tuple[str, str]:
    return stage.label(pair[0]), stage.label(pair[1])
