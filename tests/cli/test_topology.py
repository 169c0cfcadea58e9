"""`meander topology` and `meander bench` from the command line: output, files written, exit codes."""

import json
from pathlib import Path

import pytest

from lab import bench as benches
from lab.bench.report import Figure, Report
from meander.cli.main import app
from meander.lang.event_file import load_events
from meander.lang.topology.reader import load

RING = Path(__file__).parents[2] / "examples" / "topologies" / "ring.yaml"


def run(*arguments: str | Path) -> int:
    with pytest.raises(SystemExit) as ended:
        app([str(argument) for argument in arguments])
    assert isinstance(ended.value.code, int)
    return ended.value.code


def test_check_says_that_all_is_well(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("topology", "check", RING) == 0
    assert "15 nodes, 20 links, 3 streams, 3 sinks; no mistakes found" in capsys.readouterr().out


def test_check_says_what_is_wrong_and_where(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "t.yaml"
    path.write_text("nodes:\n  - {name: a, kind: edge}\n  - {name: b, kind: fog}\n")
    assert run("topology", "check", path) == 2
    shown = capsys.readouterr()
    assert shown.err == f"error: {path}, line 3: node 'b': no kind 'fog'; known kinds: cloud, edge, sensor\n"
    assert shown.out == ""


def test_check_notes_what_is_not_connected(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "t.yaml"
    path.write_text("nodes:\n  - {name: a, kind: edge}\n  - {name: b, kind: edge}\n")
    assert run("topology", "check", path) == 0
    assert "note: the topology falls into 2 parts; no data can pass between them" in capsys.readouterr().out


def test_show_describes(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("topology", "show", RING) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "nodes 15 (1 cloud, 6 edges, 8 sensors; 4 mobile)" in shown
    assert "link latency 2 to 14 ms, mean 5.8 ms" in shown
    assert "from 2 nodes, 1 tuple/s each" in shown
    assert "sink alerts on station-1" in shown


def test_show_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("topology", "show", RING, "--json") == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["nodes"], shown["links"], shown["components"]) == (15, 20, 1)
    assert [stream["name"] for stream in shown["streams"]] == ["train", "weather", "vehicle"]


@pytest.mark.parametrize(
    ("arguments", "nodes", "links"),
    [
        (["tree", "--nodes", "7"], 7, 6),
        (["star", "--nodes", "7"], 7, 6),
        (["ring", "--nodes", "7"], 7, 7),
        (["full", "--nodes", "7"], 7, 21),
        (["iot-lab"], 768, 64 * 64 + 640),
        (["iot-lab", "--clouds", "2", "--edges", "4", "--sensors", "8", "--edges-per-sensor", "2"], 14, 24),
        (["clusters", "--nodes", "50", "--clusters", "2", "--seed", "4"], 50, None),
    ],
)
def test_generate_writes_a_file_that_can_be_used(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], nodes: int, links: int | None
) -> None:
    path = tmp_path / "t.yaml"
    assert run("topology", "generate", "--kind", *arguments, "-o", path, "--json") == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["nodes"] == nodes
    assert links is None or shown["links"] == links
    assert shown["seconds"] >= 0
    contents = load(path)
    assert len(contents.topology) == nodes
    assert contents.sinks["results"].node == "cloud-1"
    assert contents.streams["reading"].nodes


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["ring"], "say how many nodes: --nodes 100"),
        (["iot-lab", "--nodes", "5"], "iot-lab takes --clouds, --edges and --sensors instead of --nodes"),
        (["ring", "--nodes", "1"], "nodes must be at least 3, but is 1"),
        (["ring", "--nodes", "5", "--slots", "4"], "slots are three whole numbers"),
        (["ring", "--nodes", "5", "--latency-ms", "a..b"], "latencies are a number or a range such as 1..10"),
        (["grid", "--nodes", "5"], "'grid' is not one of"),
    ],
)
def test_generate_refuses_what_it_cannot_make(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], expected: str
) -> None:
    path = tmp_path / "t.yaml"
    assert run("topology", "generate", "--kind", *arguments, "-o", path) == 2
    assert expected in " ".join(capsys.readouterr().err.split())
    assert not path.exists()


def test_import_writes_topology_and_events(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "scenario"
    folder.mkdir()
    (folder / "fixed_topology.json").write_text('{"nodes": {"2": [0, 0]}, "slots": {}, "children": {}}')
    event = {"parentId": 2, "childId": 9, "action": "remove"}
    updates = {"initial_parents": [[2, 9]], "topology_updates": [{"timestamp": 5, "events": [event]}]}
    (folder / "topology_updates.json").write_text(json.dumps(updates))
    topology, events = tmp_path / "t.yaml", tmp_path / "e.jsonl"
    assert run("topology", "import", "changes", folder, "-o", topology, "-e", events) == 0
    assert f"wrote {topology}" in capsys.readouterr().out
    assert len(load(topology).topology) == 3
    assert [event.at_ms for event in load_events(events)] == [5]


def test_import_repairs_only_when_asked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    matrix, output = tmp_path / "m.csv", tmp_path / "t.yaml"
    matrix.write_text("0,4\n6,0\n")
    assert run("topology", "import", "rtt", matrix, "-o", output) == 2
    assert "the matrix is not symmetric" in capsys.readouterr().err
    assert not output.exists()
    assert run("topology", "import", "rtt", matrix, "-o", output, "--repair") == 0
    assert [link.latency_ms for link in load(output).topology.links()] == [2.5]
    assert run("topology", "import", "matrix", matrix) == 2
    assert "no import kind 'matrix'; known import kinds: changes, edges, rtt" in capsys.readouterr().err


@pytest.mark.parametrize(("measured", "code"), [(1.0, 0), (3.0, 1)])
def test_bench_ends_with_one_when_a_target_is_missed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], measured: float, code: int
) -> None:
    report = Report("fake", "nothing", 1, (Figure.of("time", "s", [measured], 2.0), Figure.of("size", "MB", [7])))
    fake = benches.Bench("fake", "measures nothing", lambda quick, progress: report)
    monkeypatch.setattr(benches, "BENCHES", (fake,))
    assert run("bench", "fake", "--json") == code
    assert json.loads(capsys.readouterr().out)["holds"] == (code == 0)
    assert run("bench", "fake") == code
    assert ("yes" if code == 0 else "NO") in capsys.readouterr().out
    assert run("bench", "fast") == 2
    assert "no bench 'fast'; known benches: fake" in capsys.readouterr().err
