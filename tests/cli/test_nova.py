"""`meander nova`: place, compare and reoptimise from files, and what it says about bad ones."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from meander.cli.main import app

TOPOLOGY = """
nodes:
  - {name: cloud, kind: cloud, capacity_tps: 1000}
  - {name: edge-1, kind: edge, capacity_tps: 60}
  - {name: edge-2, kind: edge, capacity_tps: 60}
  - {name: s1, kind: sensor, capacity_tps: 5}
  - {name: s2, kind: sensor, capacity_tps: 5}
links:
  - {source: edge-1, target: cloud, latency_ms: 20}
  - {source: edge-2, target: cloud, latency_ms: 30}
  - {source: s1, target: edge-1, latency_ms: 2}
  - {source: s2, target: edge-2, latency_ms: 3}
"""


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["nova", *map(str, arguments)])


@pytest.fixture
def matrix(tmp_path: Path) -> Path:
    points = np.random.default_rng(0).uniform(0, 100, (40, 2))
    path = tmp_path / "rtt.npz"
    np.savez(path, rtt_ms=np.linalg.norm(points[:, None] - points[None], axis=2))
    return path


def test_place_says_what_tuples_experience_and_writes_replicas(matrix: Path, tmp_path: Path) -> None:
    output, picture = tmp_path / "replicas.json", tmp_path / "space.svg"
    result = run("place", "-l", matrix, "--improve", 0.2, "-o", output, "--plot", picture)
    assert result.exit_code == 0, result.output
    assert "over direct transmission" in result.output
    replicas = json.loads(output.read_text())
    assert {r["join"] for r in replicas} == set(range(12))
    assert all(0 <= r["left"]["from"] < r["left"]["to"] <= r["left"]["parts"] for r in replicas)
    assert "<svg" in picture.read_text()
    found = json.loads(run("place", "-l", matrix, "--improve", 0, "--by", "estimated", "--json").output)
    assert found["joins"] == 12
    assert found["overloaded_nodes"] == []


def test_compare_lists_every_baseline(matrix: Path) -> None:
    found = json.loads(run("compare", "-l", matrix, "--improve", 0.1, "--json").output)
    names = [row["mechanism"] for row in found]
    assert names[0] == "nova"
    assert {"sink_based", "source_based", "top_c", "tree", "cl_sf", "cl_tree_sf", "greedy"} < set(names)
    assert found[0]["overloaded"] == 0
    assert "sink_based" in run("compare", "-l", matrix, "--improve", 0.1).output


def test_reoptimise_times_events_and_compares_with_a_fresh_run(matrix: Path) -> None:
    found = json.loads(run("reoptimise", "-l", matrix, "--events", 35, "--json").output)
    assert sum(kind["events"] for kind in found["events"].values()) >= 35
    assert found["quality"]["mean_ms"] > 0
    assert "a fresh placement has" in run("reoptimise", "-l", matrix, "--events", 14).output


def test_a_topology_with_a_table_of_joins(tmp_path: Path) -> None:
    (tmp_path / "t.yaml").write_text(TOPOLOGY)
    (tmp_path / "joins.csv").write_text("left,right,left_tps,right_tps\ns1,s2,20,25\n")
    output = tmp_path / "out.json"
    result = run("place", "-t", tmp_path / "t.yaml", "--joins", tmp_path / "joins.csv", "-o", output)
    assert result.exit_code == 0, result.output
    (replica,) = json.loads(output.read_text())
    assert replica["left"]["source"] == "s1"
    assert replica["sink"] == "cloud"
    assert replica["node"] == "cloud"


def test_links_carry_no_more_than_they_can_and_what_does_not_fit_is_named(tmp_path: Path) -> None:
    (tmp_path / "t.yaml").write_text(TOPOLOGY.replace("latency_ms: 2}", "latency_ms: 2, bandwidth_mbps: 0.01}"))
    (tmp_path / "joins.csv").write_text("left,right,left_tps,right_tps\ns1,s2,20,25\n")
    arguments = "place", "-t", tmp_path / "t.yaml", "--joins", tmp_path / "joins.csv"
    found = json.loads(run(*arguments, "--json").output)
    assert found["links"]["refused"] == [0]
    assert found["unplaced"] == 1
    assert "refused: join 0" in run(*arguments).output
    found = json.loads(run(*arguments, "--json", "--tuple-bytes", 10).output)
    assert found["links"] == {"moved": 0, "cut": 0, "refused": []}


def test_repair_says_what_was_corrected(tmp_path: Path) -> None:
    matrix = np.random.default_rng(1).uniform(1, 50, (20, 20))
    path = tmp_path / "uneven.npz"
    np.savez(path, rtt_ms=matrix)
    refused = run("place", "-l", path)
    assert "the matrix is not symmetric" in str(refused.exception)
    assert "--repair takes the mean" in str(refused.exception)
    repaired = run("place", "-l", path, "--repair", "--improve", 0)
    assert repaired.exit_code == 0
    assert "repaired: 190 asymmetric pairs replaced by the mean" in repaired.output


@pytest.mark.parametrize(
    ("table", "complaint"),
    [
        ("left,right\ns1,s2\n", "the table lacks left_tps, right_tps"),
        ("left,right,left_tps,right_tps\ns1,s9,1,1\n", "line 2: no node 's9'; known nodes: "),
        ("left,right,left_tps,right_tps\ns1,s2,many,1\n", "line 2: a rate must be a number of tuples per second, not"),
        ("left,right,left_tps,right_tps\ns1,s2,0,1\n", "source 0 at s1 has no positive rate; remove such sources"),
        (
            "left,right,left_tps,right_tps\ns1,s2,900,900\n",
            "the joins take in at least 1,800 tuples per second, but all",
        ),
    ],
)
def test_bad_tables_are_refused_with_the_place_named(tmp_path: Path, table: str, complaint: str) -> None:
    (tmp_path / "t.yaml").write_text(TOPOLOGY)
    (tmp_path / "joins.csv").write_text(table)
    result = run("place", "-t", tmp_path / "t.yaml", "--joins", tmp_path / "joins.csv")
    assert result.exit_code != 0
    assert complaint in str(result.exception)


def test_one_input_is_needed(matrix: Path) -> None:
    assert "give either latencies with --latency or a topology" in str(run("place").exception)
    assert "give either" in str(run("place", "-l", matrix, "-t", matrix).exception)


def test_few_latencies_can_be_looked_up_instead_of_all(matrix: Path, tmp_path: Path) -> None:
    found = json.loads(run("place", "-l", matrix, "--probe", 4, "--improve", 0, "--json").output)
    assert 0 < found["measured_pairs"] < found["all_pairs"] == 40 * 39 // 2
    assert "pairs of nodes" in run("place", "-l", matrix, "--probe", 4, "--improve", 0).output
    topology = tmp_path / "t.yaml"
    topology.write_text(TOPOLOGY)
    assert "measured" in run("place", "-t", topology, "--probe", 1, "--improve", 0).output
    refused = run("place", "-l", matrix, "--by", "estimated", "--probe", 4)
    assert "--probe looks latencies up" in str(refused.exception)
