"""The baselines re-place whole plans, and the published counts of operators touched come out."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from lab.baselines.placement import Approach, batched_holistic, batches, incremental, serial_holistic
from lab.workloads.isqp import numbered_catalog, published_shape, three_layers
from lab.workloads.nes_queries import NesQuery, load_queries
from meander.model.events import LinkRemoved, QueryAdded
from meander.model.placement import violations

SET = Path(os.environ.get("MEANDER_DATA", Path(__file__).parents[4] / "shared" / "data")) / "isqp"
PUBLISHED = SET / "generated_queries-50Conflict-4k-QueryChanges.txt.gz"
APPROACHES = [incremental(8, 8), serial_holistic(), batched_holistic(8, 8)]


def touched(approach: Approach, queries: list[NesQuery], running: int) -> int:
    """Operators touched by the additions after the first `running` queries."""
    catalog = numbered_catalog(three_layers(), queries)
    first = incremental(64, 1).engine(catalog, "bottom_up")
    for batch in batches(([QueryAdded(0, q.query)] for q in queries[:running]), 64):
        first.run(batch)
    engine = approach.engine(catalog, "bottom_up")
    changes = ([QueryAdded(0, q.query)] for q in queries[running:])
    count = sum(engine.run(batch).touched for batch in batches(changes, approach.batch))
    engine.close()
    assert violations(catalog.plan, catalog.placement, catalog.topology) == []
    return count


@pytest.mark.slow
@pytest.mark.skipif(not PUBLISHED.is_file(), reason=f"no query set in {SET}; set MEANDER_DATA to the folder above isqp")
@pytest.mark.parametrize(("approach", "golden"), list(zip(APPROACHES, (6_144, 271_872, 271_872), strict=True)))
def test_the_published_counts(approach: Approach, golden: int) -> None:
    assert touched(approach, load_queries(PUBLISHED), 1024) == golden


@pytest.mark.parametrize(
    ("approach", "expected"), list(zip(APPROACHES, (2 * 64, 32 * (11 + 12), 32 * (11 + 12)), strict=True))
)
def test_a_generated_set_of_the_same_shape_counts_alike(approach: Approach, expected: int) -> None:
    """32 plans of 8 operators and 2 sinks run; each gets a third sink, then a fourth."""
    assert touched(approach, published_shape(128, distinct=32, conflict=0.5), 64) == expected


def test_a_broken_edge_widens_to_its_plan() -> None:
    queries = published_shape(2, distinct=2, conflict=0.0)
    catalog = numbered_catalog(three_layers(), queries)
    engine = serial_holistic().engine(catalog, "bottom_up")
    engine.run([QueryAdded(0, q.query) for q in queries])
    path = next(p for p in catalog.placement.routes.values() if int(catalog.topology.name(p.nodes[0])) <= 128)
    report = engine.run([LinkRemoved(0, catalog.topology.name(path.nodes[0]), catalog.topology.name(path.nodes[1]))])
    assert report.touched == 9
    assert violations(catalog.plan, catalog.placement, catalog.topology) == []


def test_batches_keep_the_events_of_a_change_together() -> None:
    assert list(batches([[1, 2], [3], [4, 5]], 2)) == [[1, 2, 3], [4, 5]]
    assert list(batches([], 2)) == []
