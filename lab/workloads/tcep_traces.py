"""Recorded vehicle traces as the streams of the road, where they are at hand (`MEANDER_DATA`); never copied.

Each file has the speed of one vehicle on a motorway every half second. There are fewer files than vehicles here, so
several vehicles drive the same trace, one behind the other in time. Density is not recorded: it follows from the mean
speed of a section at a flow of 1,800 vehicles an hour.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pc

from lab.workloads import tcep as road
from meander.model.errors import InputError
from meander.run.frames import arrow_schema

DATA = Path(os.environ.get("MEANDER_DATA", "../shared/data")) / "traces"
FILLER_S = 60.0
"""The first minute of a file repeats its first row."""
BEHIND_S = 7.0
"""The distance in time of vehicles that drive the same trace."""
FLOW_PER_HOUR = 1_800.0


def files(folder: Path | None = None) -> list[Path]:
    """The traces at hand, by name; none if there are none."""
    return sorted((folder or DATA).glob("speed_trace_*.csv.gz"))


def recorded(seconds: int = 60, start_s: float = 0.0, folder: Path | None = None) -> dict[str, pa.Table]:
    """A trace of every stream, second by second, as `tcep_queries.traces` has it."""
    found = [_read(path) for path in files(folder)]
    if not found:
        raise InputError(
            f"there are no vehicle traces in {folder or DATA}; set MEANDER_DATA to the folder above traces"
        )
    tables: dict[str, pa.Table] = {}
    time_s = np.arange(seconds)
    for section in range(1, road.SECTIONS + 1):
        speeds: list[np.ndarray] = []
        for number in range(1, road.AVERAGES * road.SPEEDS + 1):
            place = (section - 1) * road.AVERAGES * road.SPEEDS + number - 1
            trace = found[place % len(found)]
            at = start_s + time_s + BEHIND_S * (place // len(found))
            if at[-1] > trace["time"][-1]:
                raise InputError(f"the traces end {at[-1] - trace['time'][-1]:.0f} s too early; ask for fewer seconds")
            row = np.searchsorted(trace["time"], at)
            speeds.append(trace["speed"][row])
            columns = {
                "ts": time_s * 1000 + 53 * place,
                "vehicle": np.full(seconds, section * 100 + number),
                "section": np.full(seconds, section),
                "lane": trace["lane"][row].astype(np.int64),
                "position": trace["position"][row],
                "speed": speeds[-1],
            }
            tables[road.speed_stream(section, number)] = pa.table(columns).cast(arrow_schema(road.SPEED))
        density = FLOW_PER_HOUR / np.maximum(np.mean(speeds, axis=0), 5.0)
        columns = {"ts": time_s * 1000 + 500, "section": np.full(seconds, section), "density": density}
        tables[road.density_stream(section)] = pa.table(columns).cast(arrow_schema(road.DENSITY))
    return tables


def _read(path: Path) -> dict[str, np.ndarray]:
    """Columns of one file without its filler; times begin at zero."""
    table = pc.read_csv(path)
    names = ("time", "position", "lane", "speed")
    missing = [n for n in names if n not in table.column_names]
    if missing:
        raise InputError(f"a trace needs the columns {', '.join(names)}; there is no {missing[0]}", str(path))
    columns = {n: table.column(n).to_numpy() for n in names}
    driving = columns["time"] > FILLER_S
    kept = {n: values[driving] for n, values in columns.items()}
    return {**kept, "time": kept["time"] - kept["time"][0]}
