"""Topology-change scenarios: fog nodes that stay, devices that move from one to the next.

A scenario is a folder with `fixed_topology.json` (nodes, slots, children), `topology_updates.json` (initial parents,
then timed additions and removals) and, if queries read groups of devices, `source_groups.json`; each may be gzipped.

What becomes of it: node `cloud` above all fog nodes that have no parent, `fog-N` (edge) and `device-N` (mobile sensor)
by the numbers that the updates use, one stream `group_N` for each source group, one sink `results` on the cloud.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from meander.lang.importers.imported import Imported
from meander.lang.topology.reader import DEFAULT_SLOTS, TopologyFile
from meander.model.errors import InputError, unknown
from meander.model.events import LinkAdded, LinkRemoved
from meander.model.schema import Schema
from meander.model.streams import SinkTarget, Stream
from meander.model.text_files import read_json
from meander.model.topology.elements import Link, Node, NodeKind
from meander.model.topology.graph import Topology

FIXED, UPDATES, GROUPS = "fixed_topology.json", "topology_updates.json", "source_groups.json"
CLOUD = "cloud"
READINGS = Schema.of(ts="timestamp", id="bigint", value="double")


@dataclass(frozen=True, slots=True)
class _Fixed:
    """The nodes that stay: positions, slots and children by number."""

    position: dict[int, tuple[float, float]]
    slots: dict[int, int]
    children: dict[int, list[int]]


@dataclass(frozen=True, slots=True)
class _Change:
    at_ms: int
    parent: int
    child: int
    added: bool
    place: str


def import_changes(path: Path, repair: bool = False) -> Imported:
    """Reads a scenario from its folder; there is nothing to repair."""
    folder = path if path.is_dir() else path.parent
    fixed_path, updates_path = _required(folder, FIXED), _required(folder, UPDATES)
    groups_path = _found(folder, GROUPS)
    fixed = _fixed(read_json(fixed_path), str(fixed_path))
    updates = read_json(updates_path)
    parents, changes = _parents(updates, str(updates_path)), _changes(updates, str(updates_path))
    shift = _shift(fixed, {p for p, _ in parents} | {c.parent for c in changes}, str(updates_path))
    devices = dict.fromkeys(child for _, child in parents)
    try:
        topology = _topology(_renumbered(fixed, shift), parents, devices)
    except InputError as error:
        raise error.at(str(updates_path)) from None
    events = _events(topology, changes)
    groups = _groups(read_json(groups_path), devices, shift, str(groups_path)) if groups_path else {}
    if not groups:
        groups = {"reading": [f"device-{d}" for d in devices]}
    streams = {name: Stream(name, READINGS, "ts", tuple(nodes)) for name, nodes in groups.items()}
    notes = [f"streams are assumed to be ({READINGS})", "links are assumed to have a latency of 1 ms"]
    if shift:
        notes.append(f"node numbers of {FIXED} are one less than those of {UPDATES}; the latter are used")
    return Imported(TopologyFile(topology, streams, {"results": SinkTarget("results", CLOUD)}), events, tuple(notes))


def _found(folder: Path, name: str) -> Path | None:
    return next((p for p in (folder / name, folder / f"{name}.gz") if p.is_file()), None)


def _required(folder: Path, name: str) -> Path:
    path = _found(folder, name)
    if path is None:
        raise InputError(f"there is no {name} or {name}.gz; a scenario needs {FIXED} and {UPDATES}", str(folder))
    return path


def _fixed(value: Any, file: str) -> _Fixed:
    sections = {}
    for key in ("nodes", "slots", "children"):
        if not isinstance(value, dict) or not isinstance(value.get(key), dict):
            raise InputError(f"{key!r} must be an object with one entry per node", file)
        sections[key] = {_number(node, f"{key}: node", file): entry for node, entry in value[key].items()}
    position, slots, children = {}, {}, {}
    for node, place in sections["nodes"].items():
        if not (isinstance(place, list) and len(place) == 2 and all(_is_number(p) for p in place)):
            raise InputError(f"node {node} needs a position [lon, lat], not {place!r}", file)
        position[node] = (float(place[0]), float(place[1]))
        slots[node] = _number(sections["slots"].get(node, DEFAULT_SLOTS[NodeKind.EDGE]), f"slots of node {node}", file)
        if slots[node] < 0:
            raise InputError(f"slots of node {node} must not be negative, but are {slots[node]}", file)
    for node, below in sections["children"].items():
        if not isinstance(below, list):
            raise InputError(f"children of node {node} must be a list, not {below!r}", file)
        children[node] = [_number(child, f"child of node {node}", file) for child in below]
        for end in (node, *children[node]):
            if end not in position:
                raise unknown("node", str(end), map(str, position)).at(f"{file}, children of node {node}")
    return _Fixed(position, slots, children)


def _parents(updates: Any, file: str) -> list[tuple[int, int]]:
    listed = updates.get("initial_parents") if isinstance(updates, dict) else None
    if not isinstance(listed, list):
        raise InputError("'initial_parents' must be a list of [parent, child]", file)
    pairs = []
    for index, pair in enumerate(listed):
        if not (isinstance(pair, list) and len(pair) == 2):
            raise InputError(f"[parent, child] expected, not {pair!r}", f"{file}, initial_parents[{index}]")
        pairs.append((_number(pair[0], "parent", file), _number(pair[1], "child", file)))
    return pairs


def _changes(updates: Any, file: str) -> list[_Change]:
    listed = updates.get("topology_updates")
    if not isinstance(listed, list):
        raise InputError("'topology_updates' must be a list", file)
    found: list[_Change] = []
    for index, update in enumerate(listed):
        place = f"{file}, topology_updates[{index}]"
        if not isinstance(update, dict) or not isinstance(update.get("events"), list):
            raise InputError("a timestamp and a list of events expected", place)
        at_ms = _number(update.get("timestamp"), "timestamp", place)
        if found and at_ms < found[-1].at_ms:
            raise InputError(f"timestamp {at_ms} lies before the one above it, {found[-1].at_ms}", place)
        for number, event in enumerate(update["events"]):
            found.append(_change(event, at_ms, f"{place}.events[{number}]"))
    return found


def _change(event: Any, at_ms: int, place: str) -> _Change:
    if not isinstance(event, dict):
        raise InputError(f"an object with parentId, childId and action expected, not {event!r}", place)
    action = event.get("action")
    if action not in ("add", "remove"):
        raise InputError(f"action must be 'add' or 'remove', not {action!r}", place)
    parent, child = (_number(event.get(key), key, place) for key in ("parentId", "childId"))
    return _Change(at_ms, parent, child, action == "add", place)


def _shift(fixed: _Fixed, parents: Iterable[int], file: str) -> int:
    """The offset of the numbers of fixed nodes: some scenarios count them from 1, but call the cloud 1 as well."""
    wanted = sorted(parents)
    for shift in (0, 1):
        if all(parent - shift in fixed.position for parent in wanted):
            return shift
    missing = next(parent for parent in wanted if parent not in fixed.position)
    raise unknown("node", str(missing), map(str, fixed.position)).at(file)


def _renumbered(fixed: _Fixed, shift: int) -> _Fixed:
    return _Fixed(
        {node + shift: place for node, place in fixed.position.items()},
        {node + shift: slots for node, slots in fixed.slots.items()},
        {node + shift: [child + shift for child in below] for node, below in fixed.children.items()},
    )


def _topology(fixed: _Fixed, parents: list[tuple[int, int]], devices: Iterable[int]) -> Topology:
    located = any(place != (0.0, 0.0) for place in fixed.position.values())
    topology = Topology()
    topology.add_node(Node(CLOUD, NodeKind.CLOUD, max([DEFAULT_SLOTS[NodeKind.CLOUD], *fixed.slots.values()])))
    for node in sorted(fixed.position):
        lon, lat = fixed.position[node] if located else (None, None)
        topology.add_node(Node(f"fog-{node}", NodeKind.EDGE, fixed.slots[node], lon=lon, lat=lat))
    for device in devices:
        topology.add_node(Node(f"device-{device}", NodeKind.SENSOR, DEFAULT_SLOTS[NodeKind.SENSOR], mobile=True))
    for node in _below_cloud(fixed):
        topology.add_link(Link(f"fog-{node}", CLOUD))
    pairs = {(min(n, c), max(n, c)) for n, below in fixed.children.items() for c in below}
    for node, child in sorted(pairs):
        topology.add_link(Link(f"fog-{child}", f"fog-{node}"))
    for parent, child in parents:
        topology.add_link(Link(f"device-{child}", f"fog-{parent}"))
    return topology


def _below_cloud(fixed: _Fixed) -> list[int]:
    """The topmost fog nodes, and all of those that are only below each other."""
    children = {child for below in fixed.children.values() for child in below}
    roots = [node for node in sorted(fixed.position) if node not in children]
    seen, todo = set(roots), list(roots)
    while todo:
        for child in fixed.children.get(todo.pop(), ()):
            if child not in seen:
                seen.add(child)
                todo.append(child)
    return roots + [node for node in sorted(fixed.position) if node not in seen]


def _events(topology: Topology, changes: list[_Change]) -> tuple[LinkAdded | LinkRemoved, ...]:
    """The changes as events, each checked against the links there are at its time."""
    links = {(link.source, link.target) for link in topology.links()}
    links |= {(target, source) for source, target in links}
    events: list[LinkAdded | LinkRemoved] = []
    for change in changes:
        child, parent = f"device-{change.child}", f"fog-{change.parent}"
        if child not in topology:
            raise InputError(f"no device {change.child} in initial_parents", change.place)
        if change.added == ((child, parent) in links):
            what = "is linked already" if change.added else "is not linked"
            raise InputError(f"{child} {what} to {parent} at this time", change.place)
        if change.added:
            links |= {(child, parent), (parent, child)}
            events.append(LinkAdded(change.at_ms, Link(child, parent)))
        else:
            links -= {(child, parent), (parent, child)}
            events.append(LinkRemoved(change.at_ms, child, parent))
    return tuple(events)


def _groups(value: Any, devices: dict[int, None], shift: int, file: str) -> dict[str, list[str]]:
    if not isinstance(value, dict):
        raise InputError("an object with the groups of each device expected", file)
    members: defaultdict[int, list[int]] = defaultdict(list)
    for text, groups in value.items():
        device = _number(text, "device", file)
        if device not in devices:
            raise unknown("device", text, map(str, devices)).at(file)
        for group in groups if isinstance(groups, list) else [groups]:
            members[_number(group, f"group of device {device}", file) + shift].append(device)
    return {f"group_{group}": [f"device-{d}" for d in sorted(members[group])] for group in sorted(members)}


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value == value


def _number(value: object, what: str, place: str) -> int:
    """A whole number, written as such or as a key."""
    if isinstance(value, str) and value.lstrip("-").isdecimal():
        return int(value)
    if not isinstance(value, int) or isinstance(value, bool):
        raise InputError(f"{what} must be a whole number, not {value!r}", place)
    return value
