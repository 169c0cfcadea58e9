"""Operators wait for the inputs that lead to them, and for nobody else's, whoever shares their fragment."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.coordinator.loop.python_runner import PythonRunner
from tests.run import harness
from tests.run.harness import Plane, queries, rows_of

TEXT = """
CREATE QUERY load AS SELECT road, count(*) AS n FROM cars GROUP BY road WINDOW TUMBLING(ts, 1 s) INTO two;
CREATE QUERY wet AS SELECT a.id, b.mm FROM cars AS a JOIN rain AS b ON a.road = b.road WITHIN 1 s INTO three;
"""
SLOW = """
CREATE QUERY slow AS SELECT count(*) AS n FROM
  (SELECT b.mm FROM cars AS a JOIN rain AS b ON a.road = b.road WITHIN 1 s) GROUP BY mm WINDOW TUMBLING(1 s)
  INTO one;
"""


@pytest.fixture
def plane(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Plane:
    """With room for all operators on one node."""
    roomy = harness.catalog(100)
    monkeypatch.setattr(harness, "catalog", lambda: roomy)
    return Plane(tmp_path, PythonRunner(), queries(TEXT + SLOW))


def seconds(plane: Plane, stream: str, *nodes: str, until: int) -> None:
    for node in nodes:
        plane.enter(stream, node, rows_of(stream, np.random.default_rng(1), np.arange(0, 1_000 * until + 1, 100)))


def test_a_query_stood_still_because_a_stream_of_another_one_in_its_fragment_was_silent(plane: Plane) -> None:
    owner = plane.deployment.owner
    kinds = {type(plane.catalog.plan[o].spec).__name__: f for o, f in owner.items()}
    assert kinds["WindowAggregate"] == kinds["WindowJoin"]
    seconds(plane, "cars", "s0", "s1", until=5)
    plane.step()
    found = {query: table for (query, _), table in plane.results().items()}
    assert found["load"].num_rows > 0
    assert sum(found["load"].column("n").to_pylist()) == 2 * 50  # five windows, of which nothing is missing
    assert found["slow"].num_rows == 0


def test_what_waits_for_a_silent_stream_is_answered_when_it_is_back_and_nothing_twice(plane: Plane) -> None:
    seconds(plane, "cars", "s0", "s1", until=5)
    plane.step()
    before = {query: table.num_rows for (query, _), table in plane.results().items()}
    assert before["slow"] == 0
    plane.crash()
    seconds(plane, "rain", "s2", until=5)
    plane.step()
    after = {query: table.num_rows for (query, _), table in plane.results().items()}
    assert after["slow"] > 0
    assert after["load"] == before["load"]
    plane.finish()
    found = {query: table for (query, _), table in plane.results().items()}
    assert sum(found["load"].column("n").to_pylist()) == 2 * 51


def test_a_stage_is_fed_by_the_ports_that_lead_to_it(plane: Plane) -> None:
    for fragment in plane.installation.fragments:
        template = fragment.bound.template
        for number, operator in fragment.bound.stateful.items():
            leading, stack = set[int](), [operator]
            while stack:
                above = stack.pop()
                if above in fragment.bound.ports:
                    leading.add(fragment.bound.ports.index(above))
                else:
                    stack += fragment.bound.members.inputs[above]
            assert template.feeding[number] == tuple(sorted(leading))
