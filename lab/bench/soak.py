"""Soak: a coordinator and two sites under an even load, with changes all the time, for as long as one likes.

Memory, disk, threads and open files of all processes are read every few seconds. Once everything is warm they have to
stay where they are: a line through the readings says by how much each grows in an hour, and the last quarter of the run
must not be above the second one by more than what is written beside each target.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from lab.bench.report import Figure, Report
from lab.testbed import world
from lab.testbed.chaos import Chaos, world_on_a_bed
from lab.testbed.links import Can
from lab.testbed.process import Process
from lab.testbed.schedule import Trouble, TroubleKind
from meander.run.store.store import StoreOptions

SECONDS, QUICK_S = 3_600.0, 600.0
WARM_SHARE = 0.25
"""The share of the run after which things have to stay where they are."""
READ_S, MOVE_S, TICK_S = 5.0, 7.0, 0.05
ROWS_PER_S = 50.0
SETTLE_S = 300.0
MB = 1_000_000
SEGMENTS_MB = (1 + len(world.SITES)) * StoreOptions().segment_bytes / MB
"""A host's journal grows by one segment before what is not needed any more goes."""
Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Reading:
    """The use of all processes together at one moment."""

    at_s: float
    python_mb: float
    java_mb: float
    disk_mb: float
    """Of the directories of all hosts, without what sinks write and what sources read."""
    threads: int
    files: int


@dataclass(frozen=True, slots=True)
class Target:
    """A quantity that has to stay where it is: the ratio of its medians late and early in the run is bounded."""

    name: str
    of: Callable[[Reading], float]
    most: float
    unit: str
    allowed: float = 0.0
    """The part that may come and go, and is not counted."""


TARGETS = (
    Target("memory of Python", lambda r: r.python_mb, 1.15, "MB"),
    Target("memory of Java", lambda r: r.java_mb, 1.25, "MB"),
    Target("disk beyond a segment a host", lambda r: r.disk_mb, 1.25, "MB", SEGMENTS_MB),
    Target("threads", lambda r: r.threads, 1.1, ""),
    Target("open files", lambda r: r.files, 1.1, ""),
)


def run(quick: bool, progress: Progress, seconds: float | None = None) -> Report:
    """For so many seconds of load; starting is not part of them."""
    lasts_s = seconds or (QUICK_S if quick else SECONDS)
    with (
        tempfile.TemporaryDirectory(prefix="meander-soak-") as work,
        world_on_a_bed(Path(work), Can.NOTHING, progress, session_timeout_ms=15_000) as chaos,
    ):
        readings, moves = _soaked(chaos, lasts_s, progress)
        verdict = _settled(chaos)
    return _report(lasts_s, readings, moves, chaos.rows.count, verdict)


def _soaked(chaos: Chaos, lasts_s: float, progress: Progress) -> tuple[list[Reading], int]:
    readings: list[Reading] = []
    begun, written, moves = time.monotonic(), 0, 0
    while (now := time.monotonic() - begun) < lasts_s:
        due = round(now * ROWS_PER_S)
        if due > written:
            chaos.rows.write(due - written)
            written = due
        if now >= (moves + 1) * MOVE_S:
            chaos.make(Trouble(0.0, TroubleKind.MOVE, (world.MOVABLE[moves % len(world.MOVABLE)],)))
            moves += 1
        if now >= len(readings) * READ_S:
            readings.append(reading(now, list(chaos.test_bed.processes.values()), chaos.test_bed.directory))
            progress(_told(readings[-1]))
        time.sleep(TICK_S)
    return readings, moves


def _settled(chaos: Chaos) -> world.Verdict:
    """Ends the streams, and compares when all is there, or does not come."""
    chaos.rows.end()
    deadline = time.monotonic() + SETTLE_S
    while not (found := chaos.verdict(ended=True)).is_good and time.monotonic() < deadline:
        time.sleep(1.0)
    return found


def reading(at_s: float, processes: Sequence[Process], directory: Path) -> Reading:
    """The use of these processes and their children now."""
    sessions = {process.number for process in processes}
    python = java = 0
    threads = files = 0
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        with suppress(OSError, ValueError, IndexError):  # it may end between two looks
            name, _, rest = (entry / "stat").read_text().partition("(")[2].rpartition(")")
            fields = rest.split()
            if int(fields[3]) not in sessions:
                continue
            resident = int((entry / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
            java, python = (java + resident, python) if name.startswith("java") else (java, python + resident)
            threads += int(fields[17])
            files += len(os.listdir(entry / "fd"))
    return Reading(at_s, python / MB, java / MB, _disk(directory) / MB, threads, files)


def _disk(directory: Path) -> int:
    total = 0
    for folder, _, names in os.walk(directory):
        if Path(folder).name in ("results", "logs"):
            continue
        for name in names:
            with suppress(OSError):
                total += os.stat(Path(folder) / name).st_blocks * 512
    return total


def slope_per_hour(values: Sequence[tuple[float, float]]) -> float:
    """Of the line through these points, by least squares, an hour having 3,600 units of the first coordinate.

    >>> slope_per_hour([(0, 1), (1800, 2), (3600, 3)])
    2.0
    """
    if len(values) < 2:
        return 0.0
    return statistics.linear_regression(*zip(*values, strict=True)).slope * 3_600


def _report(lasts_s: float, readings: list[Reading], moves: int, rows: int, verdict: world.Verdict) -> Report:
    warm = [r for r in readings if r.at_s >= WARM_SHARE * lasts_s] or readings
    early = [r for r in warm if r.at_s < 0.5 * lasts_s] or warm
    late = [r for r in warm if r.at_s >= 0.75 * lasts_s] or warm
    figures: list[Figure] = []
    for target in TARGETS:
        before, after = (statistics.median(map(target.of, some)) for some in (early, late))
        ratio = max(0.0, after - target.allowed) / max(before, 1e-9)
        figures.append(Figure.of(f"{target.name}, late to early", "", [ratio], target.most))
        figures.append(Figure.of(target.name, target.unit, [target.of(r) for r in warm]))
        slope = slope_per_hour([(r.at_s, target.of(r)) for r in warm])
        figures.append(Figure.of(f"{target.name}, slope", f"{target.unit}/h".lstrip("/"), [slope]))
    compared = (("lost", verdict.lost), ("double", verdict.double), ("wrong", verdict.wrong))
    figures += [Figure.of(f"results {name}", "", [count], 0) for name, count in compared]
    figures.append(Figure.of("results compared", "", [verdict.expected]))
    notes = (
        f"{rows:,} rows at {ROWS_PER_S:g}/s, {moves} moves of an aggregate, {len(readings)} readings",
        f"the first {WARM_SHARE:.0%} of the run are not counted; early is up to the middle, late is the last quarter",
        "threads, files and memory are those of a coordinator and two sites with their Java and Python processes",
    )
    return Report("soak", f"a coordinator and two sites for {lasts_s / 60:.1f} min", 1, tuple(figures), notes)


def _told(found: Reading) -> str:
    return (
        f"{found.at_s:.0f} s: Python {found.python_mb:,.0f} MB, Java {found.java_mb:,.0f} MB, "
        f"disk {found.disk_mb:.1f} MB, {found.threads} threads, {found.files} files"
    )
