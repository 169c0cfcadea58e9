"""Change events as JSON lines: one event a line, in order of time, such as

    {"at_ms": 1000, "event": "link_removed", "source": "train-1", "target": "station-1"}

The fields of an event are those of its class in `model.events`, with a node or link written flat. A query is written by
its name and its SQL (`sql`, or `file` with a path beside the events); the caller passes the function that plans it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields
from math import isfinite
from pathlib import Path
from typing import Any

from meander.lang.demands import parse_clauses
from meander.lang.topology.reader import DEFAULT_SLOTS
from meander.lang.topology.writer import write_whole
from meander.model.demands import Demand, Metric, check_consistent
from meander.model.errors import InputError, unknown
from meander.model.events import (
    CapacityChanged,
    ChangeEvent,
    DemandChanged,
    JoinMatrixChanged,
    LinkAdded,
    LinkRemoved,
    MechanismChanged,
    NodeAdded,
    NodeRemoved,
    PlacementChanged,
    QueryAdded,
    QueryRemoved,
    RateChanged,
)
from meander.model.ids import OperatorId, QueryId
from meander.model.plan import Query
from meander.model.text_files import parse_json, read_text
from meander.model.topology.elements import Link, Node, NodeKind

Planner = Callable[[QueryId, str], Query]
"""Makes a query of its name and its SQL."""

_CLASSES: dict[str, type[ChangeEvent]] = {
    "node_added": NodeAdded,
    "node_removed": NodeRemoved,
    "link_added": LinkAdded,
    "link_removed": LinkRemoved,
    "capacity_changed": CapacityChanged,
    "rate_changed": RateChanged,
    "placement_changed": PlacementChanged,
    "demand_changed": DemandChanged,
    "join_matrix_changed": JoinMatrixChanged,
    "mechanism_changed": MechanismChanged,
    "query_added": QueryAdded,
    "query_removed": QueryRemoved,
}
_NAMES = {class_: name for name, class_ in _CLASSES.items()}
_WRITTEN = {NodeAdded: Node, LinkAdded: Link}
_KINDS = {kind.name.lower(): kind for kind in NodeKind}
_REQUIRED = {
    "node_added": ("name", "kind"),
    "node_removed": ("node",),
    "link_added": ("source", "target"),
    "link_removed": ("source", "target"),
    "capacity_changed": ("node",),
    "rate_changed": ("stream", "rate_tps"),
    "placement_changed": ("operator",),
    "demand_changed": ("query", "demands"),
    "join_matrix_changed": ("query", "pairs"),
    "mechanism_changed": ("query", "mechanism"),
    "query_added": ("query",),
    "query_removed": ("query",),
}
_TYPES: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(
        ("name", "kind", "node", "source", "target", "stream", "query", "sql", "file", "mechanism"), (str,)
    ),
    **dict.fromkeys(("at_ms", "slots", "operator"), (int,)),
    **dict.fromkeys(
        (
            "capacity_tps",
            "memory_mb",
            "latency_ms",
            "bandwidth_mbps",
            "rate_tps",
            "lon",
            "lat",
            "power_w",
            "price_per_h",
        ),
        (int, float),
    ),
    **dict.fromkeys(("mobile", "directed"), (bool,)),
    **dict.fromkeys(("demands", "pairs"), (list,)),
}
_CALLED = {str: "a text", int: "a whole number", float: "a number", bool: "true or false", list: "a list"}


def load_events(path: Path, plan: Planner | None = None) -> list[ChangeEvent]:
    """Reads an event file; `plan` is needed when queries are added in it."""
    return read_events(read_text(path), str(path), plan, path.parent)


def read_events(
    text: str, file: str = "events", plan: Planner | None = None, folder: Path = Path()
) -> list[ChangeEvent]:
    """Reads the text of an event file. Times must not go back."""
    events: list[ChangeEvent] = []
    for line, entry in enumerate(text.split("\n"), 1):
        if not entry.strip():
            continue
        try:
            event = _event(parse_json(entry, file, line), plan, folder)
            if events and event.at_ms < events[-1].at_ms:
                raise InputError(f"at_ms {event.at_ms} lies before the event above, {events[-1].at_ms}")
        except InputError as error:
            raise error.at(f"{file}, line {line}") from None
        events.append(event)
    return events


def dump_events(events: Iterable[ChangeEvent], sql: Mapping[QueryId, str] | None = None) -> Iterator[str]:
    """The lines that read back as the same events; `sql` holds the text of the queries that are added."""
    for event in events:
        yield json.dumps(_written(event, sql or {}), ensure_ascii=False) + "\n"


def write_events(events: Iterable[ChangeEvent], path: Path, sql: Mapping[QueryId, str] | None = None) -> None:
    """Writes an event file; the path holds either all of it or its former content."""
    write_whole(path, dump_events(events, sql))


def _written(event: ChangeEvent, sql: Mapping[QueryId, str]) -> dict[str, Any]:
    head = {"at_ms": event.at_ms, "event": _NAMES[type(event)]}
    match event:
        case NodeAdded(node=node):
            return head | _plain(node) | {"kind": node.kind.name.lower()}
        case LinkAdded(link=link):
            return head | _plain(link)
        case QueryAdded(query=query):
            if query.id not in sql:
                raise unknown("SQL of query", query.id, sql, plural="SQL texts")
            asked = {"mechanism": event.mechanism} if event.mechanism else {}
            return head | {"query": query.id, "sql": sql[query.id]} | asked
        case DemandChanged(demands=demands):
            return head | {"query": event.query, "demands": [_demand_fields(d) for d in demands]}
        case _:
            return head | _plain(event)


def _plain(record: Any) -> dict[str, Any]:
    """The fields of a record that differ from their defaults."""
    values = ((field, getattr(record, field.name)) for field in fields(record))
    return {field.name: value for field, value in values if value != field.default and field.name != "at_ms"}


def _demand_fields(demand: Demand) -> dict[str, Any]:
    when = {"when": " ".join(map(str, demand.when))} if demand.when else {}
    return _plain(demand) | {"metric": demand.metric.value} | when


def _event(value: Any, plan: Planner | None, folder: Path) -> ChangeEvent:
    if not isinstance(value, dict):
        raise InputError(f'an object such as {{"at_ms": 0, "event": ...}} expected, not {value!r}')
    kind = value.get("event")
    if not isinstance(kind, str) or kind not in _CLASSES:
        raise unknown("event", str(kind), _CLASSES)
    known = _known(kind)
    for key, entry in value.items():
        if key not in known:
            raise unknown(f"{kind} key", key, known)
        if key != "event":
            _check(key, entry, kind)
    for key in ("at_ms", *_REQUIRED[kind]):
        if key not in value:
            raise InputError(f"{kind} needs {key}")
    if value["at_ms"] < 0:
        raise InputError(f"at_ms must not be negative, but is {value['at_ms']}")
    return _build(kind, {key: entry for key, entry in value.items() if key != "event"}, plan, folder)


def _known(kind: str) -> set[str]:
    class_ = _CLASSES[kind]
    if class_ is QueryAdded:
        return {"at_ms", "event", "query", "sql", "file", "mechanism"}
    return {"at_ms", "event", *(field.name for field in fields(_WRITTEN.get(class_, class_)))}


def _check(key: str, value: Any, kind: str) -> None:
    allowed = _TYPES[key]
    fits = isinstance(value, allowed) and (isinstance(value, bool) == (bool in allowed))
    if not fits or (isinstance(value, float) and value != value):
        raise InputError(f"{kind}: {key} must be {_CALLED[allowed[-1]]}, not {value!r}")
    if isinstance(value, float) and not isfinite(value) and key in ("lon", "lat"):
        raise InputError(f"{kind}: {key} must be finite")


def _build(kind: str, values: dict[str, Any], plan: Planner | None, folder: Path) -> ChangeEvent:
    at_ms = values.pop("at_ms")
    match kind:
        case "node_added":
            text = values.pop("kind")
            if text not in _KINDS:
                raise unknown("kind", text, _KINDS)
            return NodeAdded(at_ms, Node(kind=_KINDS[text], **{"slots": DEFAULT_SLOTS[_KINDS[text]], **values}))
        case "link_added":
            return LinkAdded(at_ms, Link(**values))
        case "query_added":
            return QueryAdded(at_ms, _query(values, plan, folder), values.get("mechanism", ""))
        case "query_removed":
            return QueryRemoved(at_ms, QueryId(values["query"]))
        case "demand_changed":
            demands = tuple(map(_demand, values["demands"]))
            check_consistent(demands)
            return DemandChanged(at_ms, QueryId(values["query"]), demands)
        case "join_matrix_changed":
            return JoinMatrixChanged(at_ms, QueryId(values["query"]), tuple(map(_pair, values["pairs"])))
        case "mechanism_changed":
            return MechanismChanged(at_ms, QueryId(values["query"]), values["mechanism"])
        case "placement_changed":
            return PlacementChanged(at_ms, OperatorId(values["operator"]), values.get("node"))
        case _:
            return _CLASSES[kind](at_ms, **values)


def _query(values: dict[str, Any], plan: Planner | None, folder: Path) -> Query:
    if ("sql" in values) == ("file" in values):
        raise InputError("query_added needs either sql or file")
    if plan is None:
        raise InputError("queries cannot be added here; leave query_added out")
    text = values["sql"] if "sql" in values else read_text(folder / values["file"])
    return plan(QueryId(values["query"]), text)


def _pair(value: Any) -> tuple[str, str]:
    if not isinstance(value, list | tuple) or len(value) != 2 or not all(isinstance(name, str) for name in value):
        raise InputError(f"a pair is a list of two nodes, a left and a right producer, not {value!r}")
    return value[0], value[1]


def _demand(value: Any) -> Demand:
    if not isinstance(value, dict) or not {"metric", "comparison", "bound"} <= value.keys():
        raise InputError(f"a demand needs metric, comparison and bound, not {value!r}")
    metrics = {metric.value: metric for metric in Metric}
    if value["metric"] not in metrics:
        raise unknown("metric", str(value["metric"]), metrics)
    bound, weight = value["bound"], value.get("weight", 1.0)
    if not all(isinstance(number, int | float) and not isinstance(number, bool) for number in (bound, weight)):
        raise InputError(f"a demand's bound and weight must be numbers, not {bound!r} and {weight!r}")
    when = parse_clauses(str(value["when"])) if "when" in value else ()
    return Demand(metrics[value["metric"]], str(value["comparison"]), bound, weight, when)
