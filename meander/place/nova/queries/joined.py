"""Adds a join of two streams to a catalog, cut and placed by Nova or by one of the join baselines.

These decide which operators there are, so they are no mechanisms, which get operators and answer with nodes; where a
query is added they can stand in for one.
"""

from __future__ import annotations

import numpy as np

from meander.model.errors import InputError, unknown
from meander.model.ids import NodeId
from meander.model.plan import Query
from meander.place.catalog import Catalog
from meander.place.changelog import ChangeLog
from meander.place.free_capacity import in_steps
from meander.place.nova.baselines import BASELINES
from meander.place.nova.baselines.base import NOWHERE
from meander.place.nova.improvement.bandwidth import respect_links
from meander.place.nova.place import place
from meander.place.nova.problem import JoinProblem
from meander.place.nova.queries.join_parts import JoinPart
from meander.place.nova.queries.question import pairs_of_query, parts_of, problem_of_query, whole_parts
from meander.place.nova.queries.shape import JoinShape, shape_of
from meander.place.nova.queries.wiring import Wiring
from meander.place.nova.running.joins import Joins
from meander.place.nova.settings import NovaSettings
from meander.place.rates import row_bytes

NAMES = ("nova", *BASELINES)
IMPROVE_S = 0.5


def add_joined(catalog: Catalog, log: ChangeLog, query: Query, name: str) -> Wiring:
    """Writes the query into the plan, pinned to its nodes; the engine's next batch places it.

    What Nova lets nodes take in is booked in the ledger for good: later queries get the rest.
    """
    if name not in NAMES:
        raise unknown("way to place a join", name, NAMES, "ways to place a join")
    shape = shape_of(query, catalog.streams, catalog.sinks)
    problem = problem_of_query(catalog, shape, pairs_of_query(shape, catalog.streams))
    joins = _by_nova(catalog, shape, problem) if name == "nova" else None
    wiring = Wiring(catalog, log, shape)
    wiring.start(_by_baseline(name, problem, query) if joins is None else parts_of(joins))
    if joins is not None:
        _book(catalog, joins)
    return wiring


def _by_nova(catalog: Catalog, shape: JoinShape, problem: JoinProblem) -> Joins:
    joins = place(problem, NovaSettings(improve_s=IMPROVE_S))
    if np.isfinite(catalog.topology.arcs.bandwidth_mbps[: catalog.topology.arcs.count]).any():
        widest = max(row_bytes(side.schema) for side in (shape.left, shape.right))
        respect_links(joins, catalog.topology, widest)
    if len(joins.unplaced):
        raise InputError(f"query {shape.query.id!r}: {len(joins.unplaced)} of its {problem.joins} joins fit nowhere")
    return joins


def _book(catalog: Catalog, joins: Joins) -> None:
    for node in np.flatnonzero(joins.board.nodes["load"] > 0):
        catalog.ledger.add(NodeId(int(node)), 0, in_steps(float(joins.board.nodes["load"][node])))


def _by_baseline(name: str, problem: JoinProblem, query: Query) -> list[JoinPart]:
    hosts = BASELINES[name](problem).host
    missing = int((hosts == NOWHERE).sum())
    if missing:
        raise InputError(f"query {query.id!r}: {name} finds no node for {missing} of its {problem.joins} joins")
    return whole_parts(problem, hosts.tolist())
