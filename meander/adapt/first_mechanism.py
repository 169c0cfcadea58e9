"""The first mechanism of a query, from its demands: metadata say which to ask first, forecasts whether it will do.

The query is placed by the mechanism whose aims match best. If its placement is forecast to miss a demand, the others
are asked in the order of their match, and the one that comes closest has it. Nothing runs by then, so nothing moves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from meander.adapt.candidates import RELATIVE
from meander.adapt.mechanism_forecasts import Foresight, Refusal
from meander.adapt.plan import usable
from meander.adapt.selection.requirement import by_requirement, match
from meander.adapt.settings import BY_DEMANDS, AdaptationSettings
from meander.model.demands import Demand, Metric
from meander.model.ids import QueryId
from meander.place.mechanisms.base import Metadata


@dataclass(frozen=True, slots=True)
class Beginning:
    """The mechanism that a query begins with, and why."""

    mechanism: str
    reason: str
    forecasts: Mapping[str, Mapping[Metric, float]] = field(default_factory=dict)


def by_metadata(known: Mapping[str, Metadata], demands: Sequence[Demand], usual: str) -> str:
    """The mechanism whose aims match the demands best; the usual one when none does, or nothing is demanded."""
    names = by_requirement(known, demands)
    if not names or not match(known[names[0]], demands) > 0:
        return usual if usual in known or not names else names[0]
    return names[0]


def beginning(
    foresight: Foresight, query: QueryId, demands: Sequence[Demand], settings: AdaptationSettings, placed: str
) -> Beginning:
    """The choice for a query that is placed by a mechanism and does not run yet."""
    if settings.first != BY_DEMANDS:
        return Beginning(placed, "it was named for it")
    if not demands:
        return Beginning(placed, "nothing is demanded")
    known = usable(foresight, query, settings)
    names = [placed, *(n for n in by_requirement(known, demands) if n != placed)]
    found: dict[str, Mapping[Metric, float]] = {}
    for name in names:
        forecast = foresight.now(query) if name == placed else foresight.forecast(query, name)
        if isinstance(forecast, Refusal):
            continue
        found[name] = {m: v for m, v in forecast.values.items() if m not in RELATIVE}
        if not _shortfall(demands, found[name]):
            break
    best = min(found, key=lambda name: _shortfall(demands, found[name]))
    matches = placed in known and match(known[placed], demands) > 0
    why = "its metadata match the demands best" if matches else "no metadata match the demands"
    if best != placed:
        why = f"{placed} was asked first, but it is forecast {_told(demands, found[placed])}"
    ends = "" if not _shortfall(demands, found[best]) else ", and none comes closer"
    told = _told(demands, found[best])
    return Beginning(best, f"{why}; forecast {told}{ends}" if told else f"{why}; nothing can be forecast", found)


def _shortfall(demands: Sequence[Demand], values: Mapping[Metric, float]) -> float:
    missed = (d for d in demands if d.metric in values and not d.met(values[d.metric]))
    return sum(d.weight * d.shortfall(values[d.metric]) for d in missed)


def _told(demands: Sequence[Demand], values: Mapping[Metric, float]) -> str:
    known = {d.metric: d for d in demands if d.metric in values}
    return ", ".join(f"{m.value} {d.show(float(f'{values[m]:.3g}'))}" for m, d in known.items())
