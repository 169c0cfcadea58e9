"""Importers: what each format becomes, and one sentence for everything that can be wrong with a file."""

import gzip
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from meander.lang.importers import IMPORTERS, Imported, importer
from meander.lang.topology.reader import read
from meander.model.errors import InputError
from meander.model.events import LinkAdded, LinkRemoved
from meander.model.topology.elements import Link, NodeKind
from meander.model.topology.graph import Topology
from tests.lang.topology.dumped import dump

DATA = Path(os.environ.get("MEANDER_DATA", Path(__file__).parents[2] / ".." / "shared" / "data"))
with_data = pytest.mark.skipif(not DATA.is_dir(), reason=f"no measured data at {DATA}; set MEANDER_DATA to use some")


def imported(kind: str, path: Path, repair: bool = False) -> Imported:
    return importer(kind).read(path, repair)


def refused(kind: str, path: Path, repair: bool = False) -> str:
    with pytest.raises(InputError) as caught:
        imported(kind, path, repair)
    return str(caught.value).replace(str(path.parent), "FOLDER")


def links(topology: Topology) -> set[tuple[str, str, float]]:
    return {(link.source, link.target, link.latency_ms) for link in topology.links()}


def test_an_unknown_kind_names_the_known_ones() -> None:
    with pytest.raises(InputError, match="no import kind 'matrix'; known import kinds: changes, edges, rtt"):
        importer("matrix")
    assert len({i.kind for i in IMPORTERS}) == len(IMPORTERS)


# ---------------------------------------------------------------- topology changes

FIXED = {"nodes": {"2": [0.0, 0.0], "3": [0.0, 0.0]}, "slots": {"2": 7, "3": 9}, "children": {"2": [], "3": []}}
UPDATES: dict[str, Any] = {
    "initial_parents": [[2, 12], [3, 13]],
    "topology_updates": [
        {"timestamp": 0, "events": [{"parentId": 2, "childId": 12, "action": "remove"}]},
        {"timestamp": 1000, "events": [{"parentId": 3, "childId": 12, "action": "add"}]},
    ],
}
GROUPS = {"12": [2], "13": [2, 3]}


def scenario(folder: Path, fixed: Any = FIXED, updates: Any = UPDATES, groups: Any = GROUPS) -> Path:
    """A scenario folder; a text is written as it is."""
    for name, value in (("fixed_topology", fixed), ("topology_updates", updates), ("source_groups", groups)):
        if value is not None:
            (folder / f"{name}.json").write_text(value if isinstance(value, str) else json.dumps(value))
    return folder


def test_a_scenario_becomes_a_topology_streams_and_events(tmp_path: Path) -> None:
    found = imported("changes", scenario(tmp_path))
    topology = found.contents.topology
    assert links(topology) == {
        ("cloud", "fog-2", 1.0),
        ("cloud", "fog-3", 1.0),
        ("fog-2", "device-12", 1.0),
        ("fog-3", "device-13", 1.0),
    }
    device = topology.node(topology.id("device-12"))
    assert (device.kind, device.mobile, device.lon) == (NodeKind.SENSOR, True, None)
    assert topology.node(topology.id("fog-3")).slots == 9
    assert {name: stream.nodes for name, stream in found.contents.streams.items()} == {
        "group_2": ("device-12", "device-13"),
        "group_3": ("device-13",),
    }
    assert found.contents.sinks["results"].node == "cloud"
    assert found.events == (LinkRemoved(0, "device-12", "fog-2"), LinkAdded(1000, Link("device-12", "fog-3")))
    assert dump(read(dump(found.contents))) == dump(found.contents)


def test_a_scenario_that_counts_its_fixed_nodes_from_one_is_renumbered(tmp_path: Path) -> None:
    fixed = {"nodes": {"1": [1, 2], "2": [3, 4]}, "slots": {"1": 7, "2": 9}, "children": {"1": [2], "2": []}}
    found = imported("changes", scenario(tmp_path, fixed, groups={"12": [1], "13": [2]}))
    topology = found.contents.topology
    assert ("cloud", "fog-2", 1.0) in links(topology)
    assert ("fog-2", "fog-3", 1.0) in links(topology)
    assert ("cloud", "fog-3", 1.0) not in links(topology)
    assert topology.node(topology.id("fog-2")).lon == 1.0
    assert found.contents.streams["group_2"].nodes == ("device-12",)
    assert any("are one less" in note for note in found.notes)


def test_fog_nodes_that_are_all_below_each_other_all_reach_the_cloud(tmp_path: Path) -> None:
    found = imported("changes", scenario(tmp_path, FIXED | {"children": {"2": [3], "3": [2]}}, groups=None))
    assert links(found.contents.topology) >= {
        ("cloud", "fog-2", 1.0),
        ("cloud", "fog-3", 1.0),
        ("fog-2", "fog-3", 1.0),
    }
    assert found.contents.streams["reading"].nodes == ("device-12", "device-13")


def changed(index: int, **fields: Any) -> Any:
    updates = json.loads(json.dumps(UPDATES))
    updates["topology_updates"][index]["events"][0].update(fields)
    return updates


@pytest.mark.parametrize(
    ("part", "value", "expected"),
    [
        ("updates", None, "there is no topology_updates.json or topology_updates.json.gz"),
        ("updates", json.dumps(UPDATES)[:60], "topology_updates.json, line 1, column 61: the JSON is cut off here"),
        ("updates", json.dumps(UPDATES)[:40] + '"', "the JSON is cut off here; copy the file again"),
        ("updates", "{'a': 1}", "this is not JSON: expecting property name enclosed in double quotes"),
        ("updates", "", "the JSON is cut off here"),
        ("updates", '{"a": 1, "a": 2}', "key 'a' appears twice; keep one of them"),
        ("updates", "[" * 100_000, "nested too deeply"),
        ("updates", [], "'initial_parents' must be a list"),
        ("updates", {"initial_parents": [[2]]}, r"initial_parents\[0\]: \[parent, child\] expected, not \[2\]"),
        ("updates", {"initial_parents": [[2, 12]]}, "'topology_updates' must be a list"),
        ("updates", UPDATES | {"initial_parents": [[8, 12]]}, "no node '8'; known nodes: 2, 3"),
        ("updates", UPDATES | {"initial_parents": [[2, 12], [2, 12]]}, "link 'device-12' to 'fog-2' exists already"),
        (
            "updates",
            changed(0, action="move"),
            r"updates\[0\].events\[0\]: action must be 'add' or 'remove', not 'move'",
        ),
        ("updates", changed(0, childId="x"), r"updates\[0\].events\[0\]: childId must be a whole number, not 'x'"),
        ("updates", changed(0, childId=99), r"updates\[0\].events\[0\]: no device 99 in initial_parents"),
        ("updates", changed(0, parentId=3), "device-12 is not linked to fog-3 at this time"),
        ("updates", changed(1, childId=13), "device-13 is linked already to fog-3 at this time"),
        ("fixed", FIXED | {"slots": {"2": -1}}, "slots of node 2 must not be negative, but are -1"),
        ("fixed", FIXED | {"nodes": {"2": [0]}}, r"node 2 needs a position \[lon, lat\], not \[0\]"),
        ("fixed", FIXED | {"children": {"2": [5]}}, "children of node 2: no node '5'; known nodes: 2, 3"),
        ("fixed", {"nodes": {}}, "'slots' must be an object with one entry per node"),
        ("groups", {"77": [1]}, "no device '77'; known devices: 12, 13"),
        ("groups", {"12": ["a"]}, "group of device 12 must be a whole number, not 'a'"),
    ],
)
def test_a_wrong_scenario_gets_one_sentence(tmp_path: Path, part: str, value: Any, expected: str) -> None:
    with pytest.raises(InputError, match=expected):
        imported("changes", scenario(tmp_path, **{part: value}))


def test_time_that_goes_back_is_refused(tmp_path: Path) -> None:
    updates = UPDATES | {"topology_updates": UPDATES["topology_updates"][::-1]}
    assert "timestamp 0 lies before the one above it, 1000" in refused("changes", scenario(tmp_path, updates=updates))


def test_a_compressed_file_that_is_cut_off_is_noticed(tmp_path: Path) -> None:
    packed = gzip.compress(json.dumps(UPDATES).encode())
    path = scenario(tmp_path, updates=None) / "topology_updates.json.gz"
    path.write_bytes(packed)
    assert len(imported("changes", tmp_path).events) == 2
    path.write_bytes(packed[:-20])
    assert "topology_updates.json.gz: the compressed file is cut off; copy it again" in refused("changes", tmp_path)
    path.write_bytes(b"plain")
    assert "this is not a gzip file" in refused("changes", tmp_path)


# ---------------------------------------------------------------- round-trip times


def csv(folder: Path, text: str) -> Path:
    path = folder / "rtt.csv"
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    "text", ["0,4,6\n4,0,8\n6,8,0\n", "a,b,c\n0,4,6\n4,0,8\n6,8,0\n", ",a,b,c\na,0,4,6\nb,4,0,8\nc,6,8,\n"]
)
def test_latency_is_half_the_round_trip(tmp_path: Path, text: str) -> None:
    topology = imported("rtt", csv(tmp_path, text)).contents.topology
    names = ("a", "b", "c") if "a" in text else ("node-1", "node-2", "node-3")
    assert links(topology) == {(names[0], names[1], 2.0), (names[0], names[2], 3.0), (names[1], names[2], 4.0)}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "0,4\n5,0\n",
            "rtt.csv: the matrix is not symmetric: row 1, column 2 is 4, but row 2, column 1 is 5; --repair",
        ),
        (
            "0,1,2\n3,0,4\n5,6,0\n",
            "row 1, column 2 is 1, but row 2, column 1 is 3 (and 2 more pairs); --repair takes the",
        ),
        ("0,nan\n4,0\n", "row 1, column 2 is missing; --repair fills such entries"),
        ("0,\n4,0\n", "row 1, column 2 is missing; --repair fills such entries"),
        ("0,-4\n-4,0\n", "row 1, column 2 is negative (-4); row 2, column 1 is negative (-4); --repair"),
        ("0,inf\ninf,0\n", "row 1, column 2 is infinite"),
        ("0,4,6\n4,0,8\n", "the matrix is 2 x 3; it must have as many rows as columns"),
        ("0,4\n4\n", "rtt.csv, line 2: 1 entries, but 2 on the line above"),
        ("0,4\n4,x\n", "rtt.csv, line 2: entry 2 must be a number of milliseconds, not 'x'"),
        ("", "the file is empty; one line per node expected"),
        ("a,b,c\n0,4\n4,0\n", "3 names for 2 rows; give one name per row"),
        ("a,a\n0,4\n4,0\n", "rtt.csv: node 'a' appears twice"),
    ],
)
def test_a_wrong_matrix_gets_one_sentence(tmp_path: Path, text: str, expected: str) -> None:
    assert expected in refused("rtt", csv(tmp_path, text))


def test_repair_takes_means_and_fills_gaps(tmp_path: Path) -> None:
    # a-b differs, a-c is known one way, b-d and c-d are known, a-d is not: the detour over b is shortest
    text = "0,4,6,nan\n6,0,8,10\nnan,8,0,20\n-1,10,20,0\n"
    found = imported("rtt", csv(tmp_path, text), repair=True)
    latency = {(a, b): ms for a, b, ms in links(found.contents.topology)}
    assert latency[("node-1", "node-2")] == 2.5
    assert latency[("node-1", "node-3")] == 3.0
    assert latency[("node-1", "node-4")] == 7.5
    assert found.notes[:3] == (
        "1 asymmetric pair replaced by the mean",
        "1 entry filled from the opposite direction",
        "1 pair filled by the shortest detour",
    )


def test_a_node_without_any_measurement_cannot_be_repaired(tmp_path: Path) -> None:
    text = "0,4,nan\n4,0,nan\nnan,nan,0\n"
    assert "row 1, column 3 cannot be filled (and 1 more entry)" in refused("rtt", csv(tmp_path, text), repair=True)


def test_npz_holds_the_matrix_by_its_key(tmp_path: Path) -> None:
    path = tmp_path / "m.npz"
    np.savez(path, rtt_ms=np.array([[0, 4], [4, 0]], dtype=np.uint16), name=np.array(["a", "b"]))
    assert links(imported("rtt", path).contents.topology) == {("a", "b", 2.0)}
    np.savez(path, rtt=np.zeros((2, 2)))
    assert refused("rtt", path) == "FOLDER/m.npz: no array 'rtt_ms'; the file has: rtt"
    path.write_bytes(b"PK no zip")
    assert "this is not an npz file" in refused("rtt", path)
    path.unlink()
    assert "cannot read this file: no such file or directory" in refused("rtt", path)


# ---------------------------------------------------------------- edge lists


def test_an_edge_list_with_header_remarks_and_gaps(tmp_path: Path) -> None:
    path = tmp_path / "edges.csv.gz"
    path.write_bytes(gzip.compress(b"source,target,latency_ms\n# near\nsensor-1, hub, 2.5\n\nhub,cloud,,100\n"))
    topology = imported("edges", path).contents.topology
    found = list(topology.links())
    assert found == [Link("sensor-1", "hub", 2.5), Link("hub", "cloud", 1.0, 100.0)]
    kinds = [topology.node(n).kind for n in topology.ids()]
    assert kinds == [NodeKind.SENSOR, NodeKind.EDGE, NodeKind.CLOUD]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a,b\nb,a\n", "line 2: link 'b' to 'a' exists already, from line 1; --repair drops it"),
        ("a,a\n", "line 1: link 'a' to 'a' leads nowhere; its two ends must differ; --repair drops it"),
        ("a\n", "line 1: source,target[,latency_ms[,bandwidth_mbps]] expected, not 'a'"),
        ("a,b,1,2,3\n", "line 1: source,target[,latency_ms[,bandwidth_mbps]] expected, not 'a,b,1,2,3'"),
        ("a,b,soon\n", "line 1: latency_ms must be a number, not 'soon'"),
        ("a,b,-1\n", "line 1: latency_ms must not be negative, but is -1"),
        ("a,b,nan\n", "line 1: latency_ms must be a number, not 'nan'"),
        ("", "the file has no links"),
    ],
)
def test_a_wrong_edge_list_gets_one_sentence(tmp_path: Path, text: str, expected: str) -> None:
    path = tmp_path / "edges.csv"
    path.write_text(text)
    assert expected in refused("edges", path)


def test_repair_drops_doubled_links(tmp_path: Path) -> None:
    path = tmp_path / "edges.csv"
    path.write_text("a,b,3\nb,a,4\nb,b\n")
    found = imported("edges", path, repair=True)
    assert links(found.contents.topology) == {("a", "b", 3.0)}
    assert "2 doubled or empty links dropped" in found.notes


# ---------------------------------------------------------------- measured data


@with_data
@pytest.mark.parametrize("folder", sorted((DATA / "isqd").glob("*")), ids=lambda path: path.name)
def test_the_published_scenarios_run_through_without_a_wrong_change(folder: Path) -> None:
    found = imported("changes", folder)
    topology = found.contents.topology
    for event in found.events:
        if isinstance(event, LinkAdded):
            topology.add_link(event.link)
        elif isinstance(event, LinkRemoved):
            topology.remove_link(event.source, event.target)
    devices = [n for n in topology.ids() if topology.nodes.mobile[n]]
    assert len(found.contents.streams) == 10
    assert all(topology.reachable(device, topology.id("cloud")) for device in devices)


@with_data
@pytest.mark.parametrize("path", sorted((DATA / "latency").glob("*.npz")), ids=lambda path: path.stem)
def test_the_published_matrices_are_symmetric_full_meshes(path: Path) -> None:
    topology = imported("rtt", path).contents.topology
    assert len(topology.adjacency) == len(topology) * (len(topology) - 1)
