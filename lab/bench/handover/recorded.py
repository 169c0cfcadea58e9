"""Moves of recorded vehicles: how long each stays at the base stations of a road, where the traces are at hand.

The road is a circuit of 10 km, as positions in the traces begin again there. Base stations stand at equal distances;
time runs faster than it did.
"""

from __future__ import annotations

import csv
import gzip
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from lab.workloads.tcep_traces import FILLER_S, files

ROAD_M = 10_000.0


def stays_s(stations: int, faster: float, folder: Path | None = None) -> tuple[float, ...]:
    """How long the vehicles stay at each station, one after the other; nothing without traces."""
    found: list[float] = []
    for path in files(folder):
        times = list(_handovers(path, ROAD_M / stations))
        found += [(after - before) / faster for before, after in pairwise(times)]
    return tuple(found)


def _handovers(path: Path, every_m: float) -> Iterator[float]:
    """The moments at which a vehicle comes to the next station."""
    with gzip.open(path, "rt", encoding="utf-8", newline="") as file:
        rows = [(float(row["time"]), float(row["position"])) for row in csv.DictReader(file)]
    driven, before, due = 0.0, None, every_m
    for time_s, position in rows:
        if time_s <= FILLER_S:
            continue
        if before is not None:
            driven += (position - before) % ROAD_M
        before = position
        while driven >= due:
            yield time_s
            due += every_m
