"""The setting of `meander place`: a topology, queries and events from files, replayed batch by batch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path
from typing import Any

from meander.lang.event_file import load_events
from meander.lang.importers.change_scenarios import FIXED, import_changes
from meander.lang.query_files import load_queries
from meander.lang.sql.script import sql
from meander.lang.topology.reader import load
from meander.model.errors import InputError
from meander.model.events import ChangeEvent, QueryAdded
from meander.model.ids import NodeId, OperatorId, QueryId
from meander.model.operators import describe
from meander.model.plan import Query
from meander.model.resilience import Resilience
from meander.model.streams import SinkTarget, Stream
from meander.model.topology.graph import Topology
from meander.place.catalog import Catalog
from meander.place.engine import BatchReport, Engine, Move
from meander.place.mechanisms.base import Mechanism

SUFFIXES = (".sql", ".py")
STATELESS = "SELECT id, value * 2 AS doubled FROM {stream} INTO {sink}"
STATEFUL = "SELECT id, avg(value) AS mean FROM {stream} GROUP BY id WINDOW TUMBLING(ts, 10 s) INTO {sink}"


@dataclass(slots=True)
class Setting:
    """Everything that was read."""

    topology: Topology
    streams: dict[str, Stream]
    sinks: dict[str, SinkTarget]
    queries: list[Query] = field(default_factory=list)
    events: list[ChangeEvent] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    resilience: Resilience = field(default_factory=Resilience)


def read_setting(topology: Path, queries: Path | None, events: Path | None) -> Setting:
    """Reads a topology file or a folder of topology changes, the queries, and the events."""
    setting = _read_topology(topology)
    if queries is not None:
        _read_queries(setting, queries)
    elif topology.is_dir():
        _default_queries(setting, stateful="stateful" in topology.name)
    if events is not None:
        setting.events = load_events(events, lambda name, text: _planned(setting, name, text))
    if not setting.queries and not any(isinstance(e, QueryAdded) for e in setting.events):
        raise InputError("there is nothing to place; give --queries with a .sql or .py file, or a folder of them")
    return setting


def _read_topology(path: Path) -> Setting:
    if not path.is_dir():
        contents = load(path)
        return Setting(contents.topology, dict(contents.streams), dict(contents.sinks), resilience=contents.resilience)
    if not any((path / f"{FIXED}{end}").is_file() for end in ("", ".gz")):
        raise InputError(f"this folder has no {FIXED}; give a topology file or a folder of topology changes", str(path))
    imported = import_changes(path)
    contents = imported.contents
    return Setting(
        contents.topology,
        dict(contents.streams),
        dict(contents.sinks),
        events=list(imported.events),
        notes=list(imported.notes),
    )


def _read_queries(setting: Setting, path: Path) -> None:
    files = sorted(p for p in path.iterdir() if p.suffix in SUFFIXES) if path.is_dir() else [path]
    if not files:
        raise InputError(f"no query in this folder; queries end in {' or '.join(SUFFIXES)}", str(path))
    for file in files:
        script = load_queries(file, setting.streams, setting.sinks)
        setting.streams.update(script.streams)
        setting.sinks.update(script.sinks)
        for query in script.queries:
            if any(q.id == query.id for q in setting.queries):
                raise InputError(f"two queries are called {query.id!r}; give each its own name", str(file))
            setting.queries.append(query)


def _default_queries(setting: Setting, *, stateful: bool) -> None:
    """One query for each stream: a map, or an average per window."""
    text = STATEFUL if stateful else STATELESS
    sink = next(iter(setting.sinks))
    for stream in setting.streams:
        setting.queries.append(_planned(setting, QueryId(stream), text.format(stream=stream, sink=sink)))
    kind = "an average over 10 s per device" if stateful else "a map"
    setting.notes.append(f"no queries were given, so {kind} is computed for each stream")


def _planned(setting: Setting, name: QueryId, text: str) -> Query:
    script = sql(text, setting.streams, setting.sinks, name)
    if len(script.queries) != 1:
        raise InputError(f"query {name!r} must be one SELECT, not {len(script.queries)}")
    (query,) = script.queries
    return replace(query, id=name)


def engine_of(
    setting: Setting, chosen: Mechanism, *, amenders: int, control: str, seed: int, detour: float | None = None
) -> Engine:
    """An engine that nothing runs on yet; a `detour` goes before the topology's."""
    catalog = Catalog(setting.topology, setting.streams, setting.sinks, detour=setting.resilience.detour)
    return Engine(catalog, chosen, amenders=amenders, control=control, seed=seed, detour=detour)


def batches_of(events: Iterable[ChangeEvent], size: int | None) -> Iterator[list[ChangeEvent]]:
    """So many events at a time, or, without a size, those of one time."""
    if size is None:
        for _, same in groupby(events, key=lambda e: e.at_ms):
            yield list(same)
        return
    batch: list[ChangeEvent] = []
    for event in events:
        batch.append(event)
        if len(batch) == size:
            yield batch
            batch = []
    if batch:
        yield batch


@dataclass(slots=True)
class PlacingTotals:
    """The totals of a replay."""

    batches: int = 0
    events: int = 0
    placed: int = 0
    moved: int = 0
    removed: int = 0
    unplaced: int = 0
    rerouted: int = 0
    touched: int = 0
    aborts: int = 0
    seconds: float = 0.0

    def add(self, report: BatchReport) -> None:
        self.batches += 1
        self.events += report.events
        for move in report.moves:
            if move.source is None:
                self.placed += 1
            elif move.target is not None:
                self.moved += 1
            elif move.operator in report.unplaced:
                self.unplaced += 1
            else:
                self.removed += 1
        self.rerouted += len(report.rerouted)
        self.touched += report.touched
        self.aborts += report.aborts
        self.seconds += report.total_s


Seen = Callable[[int, BatchReport, PlacingTotals], None]
"""Is told the time, the report and the totals so far, after every batch."""


def replay(engine: Engine, setting: Setting, size: int | None, seen: Seen) -> PlacingTotals:
    """Places all queries, then applies the events batch by batch; a bad batch changes nothing and ends the replay."""
    totals = PlacingTotals()
    start: list[ChangeEvent] = [QueryAdded(0, query) for query in setting.queries]
    for number, batch in enumerate([start, *batches_of(setting.events, size)]):
        if not batch:
            continue
        try:
            report = engine.run(batch)
        except InputError as error:
            where = f"batch {number} at {batch[0].at_ms} ms, of which nothing was applied" if number else "queries"
            raise error.inside(where) from None
        totals.add(report)
        seen(batch[0].at_ms, report, totals)
    return totals


class Words:
    """Moves in words. Remembers what operators do, also after they are gone."""

    def __init__(self, catalog: Catalog) -> None:
        self.catalog = catalog
        self._known: dict[OperatorId, str] = {}

    def operator(self, operator: OperatorId) -> str:
        record = self.catalog.plan.operators.get(operator)
        if record is not None:
            self._known[operator] = f"operator {operator} ({describe(record.spec)})"
        return self._known.get(operator, f"operator {operator}")

    def move(self, move: Move, unplaced: dict[OperatorId, str]) -> str:
        what, name = self.operator(move.operator), self._name
        if move.source is None:
            did = f"placed on {name(move.target)}"
        elif move.target is not None:
            did = f"moved from {name(move.source)} to {name(move.target)}"
        elif move.operator in unplaced:
            did = f"left {name(move.source)} and waits, because {unplaced[move.operator]}"
        else:
            did = f"removed from {name(move.source)}"
        return f"{what} {did}: {move.cause}"

    def _name(self, node: NodeId | None) -> str:
        return "nowhere" if node is None else self.catalog.topology.name(node)


def waiting(catalog: Catalog) -> dict[OperatorId, str]:
    """Operators that are not placed, each with the reason."""
    return {
        o: record.reason or "no reason known"
        for o, record in catalog.plan.operators.items()
        if o not in catalog.placement.nodes
    }


def placement_json(catalog: Catalog) -> dict[str, Any]:
    """The placement for other programs: operators with their nodes, edges with the nodes on their way."""
    plan, placement, name = catalog.plan, catalog.placement, catalog.topology.name
    operators = [
        {
            "operator": operator,
            "does": describe(record.spec),
            "shared_plan": plan.plan_of(operator),
            "inputs": list(record.inputs),
            "node": name(placement.nodes[operator]) if operator in placement.nodes else None,
            **({} if operator in placement.nodes else {"waits_because": record.reason}),
        }
        for operator, record in plan.operators.items()
    ]
    routes = [
        {"from": upstream, "to": reader, "nodes": [name(n) for n in path.nodes], "latency_ms": path.latency_ms}
        for (upstream, reader), path in placement.routes.items()
    ]
    queries = [{"query": q, "sinks": list(running.sinks)} for q, running in plan.queries.items()]
    return {"queries": queries, "operators": operators, "routes": routes}
