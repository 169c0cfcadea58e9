"""The algorithms that Nova is compared with, one per file. `BASELINES` lists them in order."""

from __future__ import annotations

from meander.model.errors import unknown
from meander.place.nova.baselines.base import Baseline, BaselineResult
from meander.place.nova.baselines.cl_sf import cl_sf
from meander.place.nova.baselines.cl_tree_sf import cl_tree_sf
from meander.place.nova.baselines.greedy import greedy
from meander.place.nova.baselines.sink_based import sink_based
from meander.place.nova.baselines.source_based import source_based
from meander.place.nova.baselines.top_c import top_c
from meander.place.nova.baselines.tree import tree

BASELINES: dict[str, Baseline] = {
    "sink_based": sink_based,
    "source_based": source_based,
    "top_c": top_c,
    "tree": tree,
    "cl_sf": cl_sf,
    "cl_tree_sf": cl_tree_sf,
    "greedy": greedy,
}


def baseline(name: str) -> Baseline:
    """A baseline by its name."""
    if name not in BASELINES:
        raise unknown("baseline", name, BASELINES)
    return BASELINES[name]


__all__ = ["BASELINES", "Baseline", "BaselineResult", "baseline"]
