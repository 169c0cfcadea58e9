"""A query's join as Nova places it, ready to follow events: decided now, or as it was recorded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from meander.place.catalog import Catalog
from meander.place.nova.place import place
from meander.place.nova.queries.question import Pairs, numbered, pairs_of_query, problem_of_sources
from meander.place.nova.queries.settings import NovaQuerySettings
from meander.place.nova.queries.shape import JoinShape
from meander.place.nova.running.reoptimise import Reoptimiser
from meander.place.nova.running.restore import restored

NOTHING: Mapping[int, float] = MappingProxyType({})
Producers = Sequence[tuple[int, str]]
"""The side and the node of each source."""


def placed(
    catalog: Catalog,
    shape: JoinShape,
    producers: Producers,
    settings: NovaQuerySettings,
    pairs: Pairs | None = None,
    *,
    ends: Pairs | None = None,
    fits: bool = False,
    derived_tps: Mapping[int, float] = NOTHING,
) -> Reoptimiser:
    """The join placed by what nodes have left. With `fits`, the sink can take everything. `ends` are pairs of sources
    by their numbers."""
    if ends is None:
        ends = numbered(shape, pairs_of_query(shape, catalog.streams) if pairs is None else list(pairs))
    problem = problem_of_sources(catalog, shape, producers, ends, fits=fits, derived_tps=derived_tps)
    return Reoptimiser(place(settings.limited(problem, catalog.topology), settings.nova), keep=0)


def as_recorded(
    catalog: Catalog,
    shape: JoinShape,
    producers: Producers,
    settings: NovaQuerySettings,
    record: Mapping[str, Any],
    derived_tps: Mapping[int, float] = NOTHING,
) -> Reoptimiser:
    """The join where a record has it; nothing is decided."""
    problem = problem_of_sources(catalog, shape, producers, record["pairs"], fits=True, derived_tps=derived_tps)
    joins = restored(settings.limited(problem, catalog.topology), settings.nova, record["replicas"])
    return Reoptimiser(joins, keep=0)
