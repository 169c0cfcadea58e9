"""The cost of placing: it should grow with the change, and not with the running queries. Incremental placement against
re-placing whole plans.

Workload A adds queries of the published shape, B mixes additions and removals of queries with common parts, C moves
trains between base stations. `isqp_scale` grows the world under a fixed load, `isqp_contention` lets amenders fight,
`isqp_amenders` asks whether two are faster than one.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

from lab.baselines.placement import batched_holistic, batches, incremental, serial_holistic
from lab.bench.isqp import amenders as isqp_amenders
from lab.bench.isqp import contention as isqp_contention
from lab.bench.isqp import scale as isqp_scale
from lab.bench.isqp.slices import Slices, in_turn, merged, ratio_figures, side_by_side, touched_figures, usage_figures
from lab.bench.report import Figure, Report
from lab.workloads.isqp import (
    Sites,
    mixed,
    moves,
    numbered_catalog,
    overlapping,
    published_shape,
    railway,
    three_layers,
    train_queries,
)
from lab.workloads.nes_queries import NesQuery, load_queries
from meander.model.events import QueryAdded
from meander.model.plan import Query
from meander.place.catalog import Catalog
from meander.place.engine import Engine
from meander.place.mechanisms import mechanism

RUNNING, ADDED, DISTINCT, AMENDERS = 1024, 3072, 32, 8
BATCH_A, BATCH_C = 8, 10
TRAIN_QUERIES = 4000
CHANGES_B, MOVES = (64, 512), (400, 4000)
"""Changes of workloads B and C, for a quick run and a full one."""
MECHANISMS = ("bottom_up", "ilp")
GOALS_A = {"serial holistic": 25.0, "batched holistic": 10.0}
GOALS_C = {"serial holistic": 15.0, "batched holistic": 3.0}
GOLDEN = {"incremental": 6_144, "serial holistic": 271_872, "batched holistic": 271_872}
DATA = Path(os.environ.get("MEANDER_DATA", "../shared/data")) / "isqp"

Progress = Callable[[str], None]


def run(quick: bool, progress: Progress) -> Report:
    """All workloads; `quick` measures fewer slices of the same sizes."""
    queries, source = query_set()
    figures = _additions(queries, quick, progress)
    figures += _overlaps(quick, progress)
    figures += _moves(quick, progress)
    figures += isqp_scale.figures(quick, progress)
    figures += isqp_contention.figures(quick, progress)
    figures += isqp_amenders.figures(quick, progress)
    return Report(
        "isqp",
        f"A: {source}, 64/64/640 nodes, {RUNNING:,} running, {ADDED:,} added; B: generated queries with common parts; "
        f"C: 100 trains, 10 base stations, 10 clouds, {TRAIN_QUERIES:,} queries",
        1 if quick else 3,
        tuple(figures),
        (
            "time per change is apply + merge + amend; expanding and signing a query is reported as preparation",
            "approaches take turns on slices of one workload; a ratio is taken per round of slices",
            "goals apply to the median",
            *isqp_scale.NOTES,
            *isqp_contention.NOTES,
            *isqp_amenders.NOTES,
        ),
    )


def query_set() -> tuple[list[NesQuery], str]:
    """The published set with half of the queries in conflict where it is at hand, otherwise one of the same shape."""
    path = DATA / "generated_queries-50Conflict-4k-QueryChanges.txt.gz"
    if path.is_file():
        return load_queries(path), "published query set with 50% conflicts"
    generated = published_shape(RUNNING + ADDED, distinct=DISTINCT, conflict=0.5)
    return generated, "generated query set with 50% conflicts (the published one is not at hand)"


def started(catalog: Catalog, queries: list[Query], name: str = "bottom_up") -> Catalog:
    """The catalog with these queries running."""
    engine = Engine(catalog, mechanism(name))
    for batch in batches(([QueryAdded(0, q)] for q in queries), 64):
        engine.run(batch)
    assert not engine.log.waiting
    return catalog


def additions(queries: list[NesQuery], name: str, turn: int) -> dict[str, Slices]:
    """Workload A, with slices that visit every distinct query once; `turn` names the approach that begins."""
    catalog = started(numbered_catalog(three_layers(), queries), [q.query for q in queries[:RUNNING]], name)
    approaches = (incremental(BATCH_A, AMENDERS), serial_holistic(), batched_holistic(BATCH_A, AMENDERS))
    changes = ([QueryAdded(0, q.query)] for q in queries[RUNNING : RUNNING + ADDED])
    return in_turn(approaches, catalog, name, changes, DISTINCT, first=turn)


def _additions(queries: list[NesQuery], quick: bool, progress: Progress) -> list[Figure]:
    figures: list[Figure] = []
    for name in MECHANISMS:
        parts = []
        for turn in range(1 if quick else 3):
            progress(f"A: adding {ADDED:,} queries with {name}, {turn + 1} of {1 if quick else 3}")
            parts.append(additions(queries, name, turn))
        outcome = merged(parts)
        figures += ratio_figures(f"A, {name}", outcome, GOALS_A)
        figures += touched_figures(f"A, {name}", outcome)
        if not quick:
            figures += [
                Figure.of(
                    f"A, {name}: {who}, operators touched",
                    "",
                    [slices.touched],
                    float(GOLDEN[who]),
                    at_least=who != "incremental",
                )
                for who, slices in outcome.items()
            ]
        mine = outcome["incremental"]
        for what in ("prepare_s", "apply_s", "merge_s", "amend_s"):
            share = getattr(mine, what) / mine.changes * 1e6
            label = {"prepare_s": "preparation"}.get(what, what.removesuffix("_s"))
            figures.append(Figure.of(f"A, {name}: incremental, {label}", "us", [share]))
    return figures


def _overlaps(quick: bool, progress: Progress) -> list[Figure]:
    figures: list[Figure] = []
    shape = Sites()
    count, size = CHANGES_B[0] if quick else CHANGES_B[1], 2 * BATCH_A
    approaches = (incremental(BATCH_A, AMENDERS), serial_holistic(), batched_holistic(BATCH_A, AMENDERS))
    running = overlapping(RUNNING, shape)
    fresh = overlapping(count, shape, first=RUNNING)
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        progress(f"B: common parts, {share:.0%} removals")
        changes = mixed(fresh, [q.id for q in running], count, share, seed=int(100 * share))
        outcome = side_by_side(approaches, lambda: started(shape.catalog(), running), "bottom_up", changes, size)
        figures += ratio_figures(f"B, {share:.0%} removals", outcome)
        figures += touched_figures(f"B, {share:.0%} removals", outcome)
        figures += usage_figures(f"B, {share:.0%} removals", outcome)
        mine = outcome["incremental"]
        figures.append(
            Figure.of(f"B, {share:.0%} removals: incremental, preparation", "us", [mine.prepare_s / mine.changes * 1e6])
        )
    return figures


def _trains_running(queries: list[NesQuery], name: str) -> Catalog:
    return started(numbered_catalog(railway(), queries), [q.query for q in queries], name)


def _moves(quick: bool, progress: Progress) -> list[Figure]:
    figures: list[Figure] = []
    count = MOVES[0] if quick else MOVES[1]
    approaches = (incremental(BATCH_C, AMENDERS), serial_holistic(), batched_holistic(BATCH_C, AMENDERS))
    cases = [("bottom_up", share) for share in (0.0, 0.25, 0.5, 0.75, 1.0)] + [("ilp", 0.5)]
    for name, share in cases:
        progress(f"C: trains with {name}, {share:.0%} conflicts")
        queries = train_queries(TRAIN_QUERIES, conflict=share)
        outcome = side_by_side(
            approaches,
            partial(_trains_running, queries, name),
            name,
            moves(count, seed=int(100 * share)),
            2 * BATCH_C,
        )
        title = f"C, {name}, {share:.0%} conflicts"
        figures += ratio_figures(title, outcome, GOALS_C)
        figures += touched_figures(title, outcome)
        figures += usage_figures(title, outcome)
    return figures
