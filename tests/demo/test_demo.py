"""The demo's world: its line, its fleet, its script. The demo as a whole runs in tests/page."""

import numpy as np
import pytest

from meander.demo.fleet import Surveyed, TrainFleet, trains_in
from meander.demo.incidents import PERIOD_S, SCRIPT, Incident, Incidents
from meander.demo.line import STATIONS, base, curve, first_bases, topology
from meander.demo.queries import BY_NOVA, QUERIES, SAMPLES
from meander.lang.sql.script import sql
from meander.lang.topology.reader import TopologyFile, read
from meander.model.topology.elements import NodeKind
from meander.place.mechanisms import MECHANISMS


@pytest.fixture(scope="module")
def world() -> TopologyFile:
    return read(topology(24))


def _seen(base_of: dict[str, str], dead: tuple[str, ...] = ()) -> Surveyed:
    trains = [f"train-{i + 1}" for i in range(24)]
    return Surveyed(frozenset({*trains, *(base(i) for i in range(STATIONS))} - set(dead)), base_of)


def _at_first() -> dict[str, str]:
    return {f"train-{i + 1}": base(at) for i, at in enumerate(first_bases(24))}


def test_the_line_is_closed_and_stations_are_equally_far_apart() -> None:
    line = curve()
    assert line.at(0.0) == line.at(1.0)
    lon, lat = line.at(np.arange(STATIONS + 1) / STATIONS)
    steps = np.hypot(np.diff(lon) * np.cos(np.radians(52.5)), np.diff(lat))
    assert steps.max() / steps.min() < 1.1


def test_the_world_is_connected_and_every_train_has_a_base_station(world: TopologyFile) -> None:
    nodes = world.topology
    cloud = nodes.id("cloud")
    assert all(nodes.path(nodes.id(name), cloud) for name in world.streams["train"].nodes)
    assert int((nodes.nodes.kind == NodeKind.CLOUD).sum()) == 1
    assert len(world.streams["train"].nodes) == 24


def test_all_queries_and_samples_can_be_read(world: TopologyFile) -> None:
    for name, text in (*QUERIES.items(), *BY_NOVA.items(), *SAMPLES):
        (query,) = sql(text, world.streams, world.sinks, name.replace(" ", "_")).queries
        assert query.plan.operators


def test_trains_go_round_and_end_where_they_began(world: TopologyFile) -> None:
    fleet = TrainFleet(world.streams["train"])
    assert fleet.stretches(0.0) == pytest.approx(np.arange(24) * STATIONS / 24, abs=1.0)
    halfway = fleet.places(600.0)
    assert set(halfway) == set(world.streams["train"].nodes)
    assert len(set(halfway.values())) == 24


def test_a_train_changes_to_the_nearest_base_station_and_not_back(world: TopologyFile) -> None:
    fleet, base_of = TrainFleet(world.streams["train"]), _at_first()
    changes: dict[str, list[str]] = {}
    for second in range(150):
        for event in fleet.handovers(float(second), _seen(base_of)):
            if event["event"] == "link_added":
                base_of[event["source"]] = event["target"]
                changes.setdefault(event["source"], []).append(event["target"])
    assert set(changes) == set(world.streams["train"].nodes)
    for path in changes.values():
        assert len(path) == len(set(path)), "a train went back and forth"


def test_trains_find_another_base_station_when_theirs_is_gone(world: TopologyFile) -> None:
    fleet = TrainFleet(world.streams["train"])
    base_of = _at_first()
    gone = base_of.pop("train-1")
    events = [e for e in fleet.handovers(0.0, _seen(base_of, (gone,))) if e["source"] == "train-1"]
    assert [e["event"] for e in events] == ["link_added"]
    assert events[0]["target"] != gone
    assert trains_in(events) == 1


def test_a_train_that_is_down_and_a_world_without_base_stations_are_left_alone(world: TopologyFile) -> None:
    fleet = TrainFleet(world.streams["train"])
    assert not [e for e in fleet.handovers(90.0, _seen(_at_first(), ("train-3",))) if e["source"] == "train-3"]
    assert fleet.handovers(90.0, _seen({}, tuple(base(i) for i in range(STATIONS)))) == []


def _topology(alive: bool = True) -> dict[str, object]:
    links = [{"a": "exchange-1", "b": "gateway-1", "latency_ms": 2.0}, {"a": "base-9", "b": "gateway-2"}]
    names = ("exchange-1", "gateway-1", "gateway-2", "base-9")
    nodes = [{"name": n, "kind": "edge", "capacity": 8, "alive": alive or n != "exchange-1"} for n in names]
    return {"nodes": nodes, "links": links if alive else links[1:]}


def test_a_node_that_fails_is_restored_by_the_coordinator_that_remembers_its_links() -> None:
    script = Incidents()
    fails, back = SCRIPT[0], SCRIPT[1]
    assert script.events(fails, _topology()) == [{"event": "node_removed", "node": "exchange-1"}]
    assert script.restores(fails, _topology()) == []
    assert script.events(back, _topology(alive=False)) == []
    assert script.restores(back, _topology(alive=False)) == ["exchange-1"]


def test_what_somebody_else_has_done_already_is_not_done_again() -> None:
    script = Incidents()
    assert script.events(SCRIPT[0], _topology(alive=False)) == []
    assert script.restores(SCRIPT[1], _topology()) == []
    assert script.events(SCRIPT[3], _topology()) == []


def test_each_query_of_the_script_runs_and_a_switch_has_a_mechanism_that_does_not_place_it_yet() -> None:
    known = {m.name for m in MECHANISMS}
    for incident in (i for i in SCRIPT if i.query is not None):
        assert incident.query in QUERIES
        assert bool(incident.demands) != bool(incident.mechanisms)
        assert known.issuperset(incident.mechanisms)
        assert len(set(incident.mechanisms)) != 1, "one that may place it already"
    assert any(i.mechanisms for i in SCRIPT)


def test_the_script_repeats_and_begins_nothing_that_would_not_end_in_time() -> None:
    script, happened = Incidents(), []
    for second in range(int(2 * PERIOD_S)):
        incident = script.due(float(second), 2 * PERIOD_S)
        happened += [incident] if incident else []
    assert happened == [*SCRIPT, *SCRIPT]
    short: list[Incident] = []
    script = Incidents()
    for second in range(12):
        incident = script.due(float(second), 12.0)
        short += [incident] if incident else []
    assert short == []
