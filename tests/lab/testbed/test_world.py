"""The oracle of chaos tells what is lost, what is double and what is wrong."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lab.testbed import world
from lab.testbed.world import Verdict
from meander.lang.topology.reader import load
from meander.model.resilience import ReplicationMode
from meander.run.connectors import sink_elsewhere, source_elsewhere


def write(path: Path, query: str, results: list[world.Result]) -> None:
    names = world.COLUMNS.get(query, ("window_start", "value", "n", "total"))
    lines = []
    for result in results:
        row = dict(zip(names, result, strict=True))
        if "window_start" in row:
            row["window_start"] = f"1970-01-01T00:{result[0] // 60:02d}:{result[0] % 60:02d}.000Z"  # type: ignore[assignment]
        lines.append(json.dumps(row) + "\n")
    path.write_text("".join(lines))


@pytest.mark.parametrize("query", list(world.QUERIES | world.APPLIED))
def test_results_are_compared_with_the_oracle(query: str, tmp_path: Path) -> None:
    rows = 4_000  # more than a minute of windows
    results = sorted(world.expected(query, rows).elements())
    path = tmp_path / f"{query} > {world.SINKS[query][1]}.jsonl"
    write(path, query, results)
    assert world.verdict(query, rows, tmp_path) == Verdict(len(results), 0, 0, 0)
    write(path, query, results[1:])
    assert world.verdict(query, rows, tmp_path) == Verdict(len(results), 1, 0, 0)
    write(path, query, [*results, results[3], results[3]])
    assert world.verdict(query, rows, tmp_path) == Verdict(len(results), 0, 2, 0)
    wrong = (*results[0][:-1], 999_999)
    write(path, query, [wrong, *results[1:]])
    assert world.verdict(query, rows, tmp_path) == Verdict(len(results), 1, 0, 1)
    with path.open("a") as file:
        file.write('{"id": 5')  # a line on its way
    assert world.verdict(query, rows, tmp_path).wrong == 1


def test_while_rows_come_only_windows_that_are_over_must_be_there(tmp_path: Path) -> None:
    rows = 110  # the third window has begun
    write(tmp_path / "counts > out.jsonl", "counts", sorted(world.expected("counts", 100).elements()))
    assert world.verdict("counts", rows, tmp_path, ended=False) == Verdict(20, 0, 0, 0)
    assert world.verdict("counts", rows, tmp_path).lost == 10
    assert world.verdict("counts", 102, tmp_path, ended=False) == Verdict(10, 0, 0, 0)  # may be there, must not
    assert sum(world.closed("large", rows).values()) == 55


def test_the_oracle_counts_every_row_once() -> None:
    assert sum(n * times for (_, _, n, _), times in world.expected("counts", 1234).items()) == 1234
    assert sum(total for _, _, _, total in world.expected("counts", 1234)) == sum(range(1234))


def test_with_replicas_nothing_is_on_a_site_that_others_do_not_reach(tmp_path: Path) -> None:
    found = load(world.write_world(tmp_path, replicas=True))
    assert found.resilience.replication is ReplicationMode.ASYNC
    assert all(source_elsewhere(stream) is None for stream in found.streams.values())
    assert sink_elsewhere(found.sinks["side"]) is None
    assert str(world.shared_results(tmp_path)) in found.sinks["side"].options["path"]
    assert load(world.write_world(tmp_path)).resilience.replication is ReplicationMode.OFF


@pytest.mark.parametrize("query", list(world.QUERIES | world.APPLIED))
def test_what_must_be_there_while_rows_come_grows_to_all_that_must_be_there(query: str) -> None:
    """Nothing is asked for that later rows could still change."""
    rows = 4_000
    whole = world.expected(query, rows)
    for count in range(0, rows, 37):
        assert not world.closed(query, count) - whole
    assert world.closed(query, rows) == whole or query in ("counts", "bursts")
