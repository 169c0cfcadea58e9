"""Measures approaches side by side: short slices of the workload, given to each in turn.

All approaches see the same running queries at nearly the same moment, so neither the machine's mood nor the growth of
the plans favours one of them. A ratio is taken for every round of slices; the median counts.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice

from lab.baselines.placement import Approach, batches
from lab.bench.report import Figure
from meander.model.events import ChangeEvent, QueryAdded
from meander.model.placement import mbps, violations
from meander.place.catalog import Catalog

Change = Sequence[ChangeEvent]


@dataclass(slots=True)
class Slices:
    """The cost of an approach, slice by slice, in microseconds per change."""

    wall_us: list[float] = field(default_factory=list)
    cpu_us: list[float] = field(default_factory=list)
    touched: int = 0
    changes: int = 0
    apply_s: float = 0.0
    merge_s: float = 0.0
    amend_s: float = 0.0
    prepare_s: float = 0.0
    usage: float = 0.0
    """Mbit/s x ms over all routes at the end: how good the placement is that was kept."""


def in_turn(
    approaches: Sequence[Approach],
    catalog: Catalog,
    mechanism: str,
    changes: Iterable[Change],
    size: int,
    *,
    first: int = 0,
) -> dict[str, Slices]:
    """One catalog for all: slices of `size` changes go to the approaches in turn, beginning with number `first`."""
    runners = [SliceRunner(a, catalog, mechanism) for a in approaches]
    remaining = iter(changes)
    turn = first
    _leave_to_itself()
    while len(part := list(islice(remaining, size))) == size:
        runners[turn % len(runners)].take(part)
        turn += 1
    return _ended(runners)


def side_by_side(
    approaches: Sequence[Approach],
    make: Callable[[], Catalog],
    mechanism: str,
    changes: Iterable[Change],
    size: int,
) -> dict[str, Slices]:
    """A catalog for each, where what an approach did before matters: all take every slice, one after the other."""
    runners = [SliceRunner(a, make(), mechanism) for a in approaches]
    remaining = iter(changes)
    _leave_to_itself()
    while len(part := list(islice(remaining, size))) == size:
        for runner in runners:
            runner.take(part)
    return _ended(runners)


class SliceRunner:
    """An approach at work on a catalog, with its cost so far."""

    def __init__(self, approach: Approach, catalog: Catalog, mechanism: str) -> None:
        self.approach, self.catalog = approach, catalog
        self.engine = approach.engine(catalog, mechanism)
        self.slices = Slices()

    def take(self, part: Sequence[Change]) -> None:
        """Works on a slice."""
        engine, slices, size = self.engine, self.slices, len(part)
        started = time.perf_counter()
        for change in part:
            for event in change:
                if isinstance(event, QueryAdded):
                    engine.applicator.preparation.prepare(event.query)
        slices.prepare_s += time.perf_counter() - started
        total, cpu = 0.0, time.process_time()
        for batch in batches(part, self.approach.batch):
            report = engine.run(batch)
            total += report.total_s
            slices.touched += report.touched
            slices.apply_s += report.apply_s
            slices.merge_s += report.merge_s
            slices.amend_s += report.amend_s
        slices.cpu_us.append((time.process_time() - cpu) / size * 1e6)
        slices.wall_us.append(total / size * 1e6)
        slices.changes += size


def _leave_to_itself() -> None:
    """Python's garbage collector looks at what the slices make, and no more at the worlds of all approaches together: a
    look at those takes a fifth of a second, and falls on whichever slice allocates next."""
    gc.unfreeze()
    gc.collect()
    gc.freeze()


def _ended(runners: Sequence[SliceRunner]) -> dict[str, Slices]:
    """The figures of all approaches, after a check that their placements are valid."""
    for runner in runners:
        runner.engine.close()
        catalog = runner.catalog
        assert violations(catalog.plan, catalog.placement, catalog.topology) == []
        routes = catalog.placement.routes.items()
        runner.slices.usage = sum(mbps(catalog.plan[upstream]) * path.latency_ms for (upstream, _), path in routes)
    return {runner.approach.name: runner.slices for runner in runners}


def merged(parts: Iterable[dict[str, Slices]]) -> dict[str, Slices]:
    """Several runs as one."""
    found: dict[str, Slices] = {}
    for part in parts:
        for name, slices in part.items():
            into = found.setdefault(name, Slices())
            into.wall_us += slices.wall_us
            into.cpu_us += slices.cpu_us
            for what in ("touched", "changes", "apply_s", "merge_s", "amend_s", "prepare_s"):
                setattr(into, what, getattr(into, what) + getattr(slices, what))
    return found


def ratio_figures(
    title: str, outcome: dict[str, Slices], goals: dict[str, float] | None = None, *, own: str = "incremental"
) -> list[Figure]:
    """Time per change of each approach, and how many times less the own one takes."""
    mine = outcome[own]
    figures = [Figure.of(f"{title}: {name}, time per change", "us", slices.wall_us) for name, slices in outcome.items()]
    for name, slices in outcome.items():
        if name != own:
            figures += [
                Figure.of(
                    f"{title}: {name} to {own}, {measure}time",
                    "ratio",
                    [theirs / ours for theirs, ours in zip(them, us, strict=False)],
                    (goals or {}).get(name) if not measure else None,
                    at_least=True,
                )
                for measure, them, us in (("", slices.wall_us, mine.wall_us), ("CPU ", slices.cpu_us, mine.cpu_us))
            ]
    return figures


def usage_figures(title: str, outcome: dict[str, Slices], *, own: str = "incremental") -> list[Figure]:
    """Traffic x latency at the end, compared with that of the serial baseline, if anything still flows."""
    theirs = outcome["serial holistic"].usage
    name = f"{title}: network usage, {own} to serial holistic"
    return [Figure.of(name, "ratio", [outcome[own].usage / theirs])] if theirs else []


def touched_figures(title: str, outcome: dict[str, Slices]) -> list[Figure]:
    return [
        Figure.of(f"{title}: {name}, operators touched per change", "", [slices.touched / slices.changes])
        for name, slices in outcome.items()
    ]
