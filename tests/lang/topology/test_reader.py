"""Topology files: what they read as, that they read back as they were, and the exact error of every bad one."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meander.lang.topology.reader import DEFAULT_SLOTS, TopologyFile, load, read, write_yaml
from meander.model.errors import InputError
from meander.model.resilience import ReplicationMode, Resilience
from meander.model.schema import Schema
from meander.model.streams import SinkTarget, Stream
from meander.model.topology.elements import UNLIMITED, Link, Node, NodeKind
from meander.model.topology.graph import Topology
from tests.lang.topology.dumped import dump

BAD = sorted((Path(__file__).parents[1] / "bad_topologies").glob("*.yaml"))
RING = Path(__file__).parents[3] / "examples" / "topologies" / "ring.yaml"

NODES = """
nodes:
  - {name: c, kind: cloud}
  - {name: e, kind: edge}
  - {name: s1, kind: sensor}
  - {name: s2, kind: sensor}
"""


def nodes_of(contents: TopologyFile) -> list[Node]:
    return [contents.topology.node(n) for n in contents.topology.ids()]


def links_of(contents: TopologyFile) -> set[Link]:
    """Every link, those that go both ways from the end that comes first in the alphabet."""
    return {link if link.directed or link.source < link.target else turned(link) for link in contents.topology.links()}


def turned(link: Link) -> Link:
    return Link(link.target, link.source, link.latency_ms, link.bandwidth_mbps)


def same(one: TopologyFile, other: TopologyFile) -> None:
    assert nodes_of(one) == nodes_of(other)
    assert links_of(one) == links_of(other)
    assert one.streams == other.streams
    assert one.sinks == other.sinks


# ---------------------------------------------------------------- reading


def test_the_example_reads_as_it_says() -> None:
    contents = load(RING)
    kinds = [node.kind for node in nodes_of(contents)]
    assert [kinds.count(kind) for kind in (NodeKind.CLOUD, NodeKind.EDGE, NodeKind.SENSOR)] == [1, 6, 8]
    assert sum(node.mobile for node in nodes_of(contents)) == 4
    assert contents.streams["train"] == Stream(
        "train",
        Schema.of(ts="timestamp", id="bigint", station="string", speed="double", passengers="int"),
        "ts",
        ("train-1", "train-2", "train-3", "train-4"),
        20.0,
        {"connector": "trains"},
    )
    assert list(contents.streams) == ["train", "weather", "vehicle"]
    assert {name: sink.node for name, sink in contents.sinks.items()} == {
        "dashboard": "cloud",
        "alerts": "station-1",
        "archive": "cloud",
    }
    topology = contents.topology
    assert topology.latency_ms(topology.id("train-1"), topology.id("cloud")) == 17.0
    assert topology.node(topology.id("train-1")).memory_mb == 512


def test_what_is_left_out_has_its_documented_default() -> None:
    contents = read(NODES + "links: [{source: s1, target: e}]\nstreams: [{name: r, schema: ts timestamp}]\n")
    node = nodes_of(contents)[2]
    assert node == Node("s1", NodeKind.SENSOR, DEFAULT_SLOTS[NodeKind.SENSOR], UNLIMITED, UNLIMITED, None, None, False)
    assert links_of(contents) == {Link("e", "s1", 1.0, UNLIMITED)}
    assert contents.streams["r"] == Stream("r", Schema.of(ts="timestamp"), "ts", ("s1", "s2"), 100.0, {})


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        ("all sensors", ("s1", "s2")),
        ("all", ("c", "e", "s1", "s2")),
        ("s*", ("s1", "s2")),
        ("e", ("e",)),
        ("[s2, e]", ("s2", "e")),
        ("[s*, s2, e]", ("s1", "s2", "e")),
        ("[]", ()),
    ],
)
def test_producers_are_named_listed_or_matched(nodes: str, expected: tuple[str, ...]) -> None:
    contents = read(NODES + f"streams:\n  - {{name: r, schema: {{ts: timestamp}}, nodes: {nodes}}}\n")
    assert contents.streams["r"].nodes == expected


def test_numbers_are_read_as_people_write_them() -> None:
    contents = read(
        "nodes:\n  - {name: 12, kind: edge, slots: 1_000, capacity_tps: 1e5, memory: 1.5 GB}\n"
        "  - {name: 'on', kind: edge, capacity_tps: unlimited, memory_mb: .inf, mobile: Yes}\n"
    )
    first, second = nodes_of(contents)
    assert (first.name, first.slots, first.capacity_tps, first.memory_mb) == ("12", 1000, 1e5, 1500)
    assert (second.name, second.capacity_tps, second.memory_mb, second.mobile) == ("on", UNLIMITED, UNLIMITED, True)


def test_one_way_links_go_one_way() -> None:
    contents = read(NODES + "links:\n  - {source: s1, target: e, directed: true}\n  - {source: e, target: c}\n")
    topology = contents.topology
    assert topology.reachable(topology.id("s1"), topology.id("c"))
    assert not topology.reachable(topology.id("c"), topology.id("s1"))


def test_anchors_are_understood() -> None:
    contents = read("nodes:\n  - {name: a, kind: &k edge}\n  - {name: b, kind: *k}\n")
    assert [node.kind for node in nodes_of(contents)] == [NodeKind.EDGE, NodeKind.EDGE]


def test_a_name_among_a_hundred_thousand_is_missed_at_once() -> None:
    lines = "".join(f"  - {{name: s-{i}, kind: sensor}}\n" for i in range(100_000))
    with pytest.raises(InputError, match=r"line 100003: link 's-1' to 's-100000' dangles: .* known nodes: s-10000,"):
        read(f"nodes:\n{lines}links:\n  - {{source: s-1, target: s-100000}}\n")


# ---------------------------------------------------------------- round trip

NAME = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=6)
AMOUNT = st.floats(0, allow_nan=False, width=32)
TYPES = st.sampled_from(["boolean", "int", "bigint", "double", "string", "array<double>", "array<array<string>>"])
OPTIONS = st.dictionaries(NAME, st.text(st.characters(exclude_categories=["Cs"]), max_size=6), max_size=2)


@st.composite
def contents_strategy(draw: st.DrawFn) -> TopologyFile:
    names = draw(st.lists(NAME, min_size=1, max_size=6, unique=True))
    located = st.none() | st.tuples(st.floats(-180, 180, width=32), st.floats(-90, 90, width=32))
    nodes = []
    for name in names:
        lon, lat = draw(located) or (None, None)
        kind, slots = draw(st.sampled_from(NodeKind)), draw(st.integers(0, 2**31 - 1))
        nodes.append(Node(name, kind, slots, draw(AMOUNT), draw(AMOUNT), lon, lat, draw(st.booleans())))
    topology = Topology.of(nodes, [])
    for a, b in draw(st.lists(st.tuples(st.sampled_from(names), st.sampled_from(names)), max_size=8)):
        directed = draw(st.booleans())
        taken = (
            topology.adjacency.between(topology.id(a), topology.id(b)),
            topology.adjacency.between(topology.id(b), topology.id(a)),
        )
        if a != b and taken[0] is None and (directed or taken[1] is None):
            topology.add_link(Link(a, b, draw(AMOUNT), draw(AMOUNT), directed))
    streams = {}
    for name in draw(st.lists(NAME, max_size=3, unique=True)):
        columns = draw(st.dictionaries(NAME, TYPES, max_size=4)) | {"ts": "timestamp"}
        producers = tuple(draw(st.lists(st.sampled_from(names), unique=True)))
        rate_tps = draw(st.floats(0, exclude_min=True, allow_infinity=False))
        streams[name] = Stream(name, Schema.of(**columns), "ts", producers, rate_tps, draw(OPTIONS))
    sinks = {
        name: SinkTarget(name, draw(st.sampled_from(names)), draw(OPTIONS))
        for name in draw(st.lists(NAME, max_size=3, unique=True))
    }
    return TopologyFile(topology, streams, sinks)


@given(contents=contents_strategy())
def test_what_is_written_reads_back_the_same(contents: TopologyFile) -> None:
    text = dump(contents)
    again = read(text)
    same(again, contents)
    assert dump(again) == text


@given(contents=contents_strategy())
def test_entries_on_one_line_read_the_same_without_the_short_cut(contents: TopologyFile) -> None:
    text = dump(contents)
    same(read(text.replace("}\n", "} # a remark\n")), read(text))


def test_removed_nodes_and_links_are_not_written() -> None:
    contents = read(NODES + "links:\n  - {source: s1, target: e}\n  - {source: s2, target: e}\n")
    contents.topology.remove_node(contents.topology.id("s2"))
    again = read(dump(contents))
    assert [node.name for node in nodes_of(again)] == ["c", "e", "s1"]
    assert links_of(again) == {Link("e", "s1")}


def test_what_links_lose_is_kept_for_test_beds() -> None:
    text = NODES + "links:\n  - {source: s1, target: e, loss_percent: 2.5}\n  - {source: s2, target: e}\n"
    contents = read(text)
    assert contents.losses == {("s1", "e"): 2.5}
    assert dump(read(dump(contents))) == dump(contents)
    assert set(read(dump(contents)).losses.values()) == {2.5}
    with pytest.raises(InputError, match=r"line .*link 's1' to 'e': loss_percent must be at most 100, but is 101"):
        read(text.replace("2.5", "101"))


def test_a_file_that_cannot_be_written_leaves_nothing_behind(tmp_path: Path) -> None:
    contents = read(NODES)
    write_yaml(contents, tmp_path / "good.yaml")
    same(load(tmp_path / "good.yaml"), contents)
    (tmp_path / "folder").mkdir()
    for place in (tmp_path / "folder", tmp_path / "missing" / "file.yaml"):
        with pytest.raises(InputError, match=f"{place.name}: cannot write this file: "):
            write_yaml(contents, place)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder", "good.yaml"]


# ---------------------------------------------------------------- bad input


@pytest.mark.parametrize("path", BAD, ids=lambda path: path.stem)
def test_bad_topology_gets_its_error(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    expected = text.splitlines()[0].removeprefix("# ")
    with pytest.raises(InputError) as caught:
        read(text, path.name)
    assert str(caught.value) == expected


def test_there_are_bad_topologies() -> None:
    assert len(BAD) > 50


@pytest.mark.parametrize(
    ("content", "expected"),
    [(None, "no such file or directory"), (b"\xff\xfe\x00", "not text in UTF-8"), (b"a\x00b", "this is not YAML")],
)
def test_a_file_that_is_no_text_is_refused(tmp_path: Path, content: bytes | None, expected: str) -> None:
    path = tmp_path / "t.yaml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InputError, match=expected):
        load(path)
    with pytest.raises(InputError, match="is a directory"):
        load(tmp_path)


def test_settings_of_replicas_are_read_and_written() -> None:
    text = "replication: sync\nreplication_lag: 2s\nreplication_bytes: 8MB\ntakeover: 60s\n"
    contents = read(text + NODES)
    assert contents.resilience == Resilience(1, None, 1.5, ReplicationMode.SYNC, 2_000, 8_000_000, 60_000)
    assert read(dump(contents)).resilience == contents.resilience
    assert read("replicas: 2\nreplication: off\n" + NODES).resilience == Resilience(2)
    for line, problem in (
        ("replication: often", "no replication 'often'; known replications: async, off, sync"),
        ("takeover: soon", "takeover must be a time such as 30s"),
        ("replication_bytes: much", "replication_bytes: "),
    ):
        with pytest.raises(InputError, match=problem):
            read(line + "\n" + NODES)


def test_settings_for_failures_are_read_and_written() -> None:
    assert read(NODES).resilience == Resilience()
    contents = read("replicas: 2\ndisconnected: 30s\ndetour: 2.5\n" + NODES)
    assert contents.resilience == Resilience(2, 30_000, 2.5, ReplicationMode.ASYNC)
    assert read(dump(contents)).resilience == contents.resilience
    assert read("disconnected: hold\n" + NODES).resilience == Resilience()
