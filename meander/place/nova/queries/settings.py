"""The settings of queries that Nova places in a running service: the section `[nova]` of the settings file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meander.model.errors import InputError, unknown
from meander.model.topology.graph import Topology
from meander.place.nova.problem import UNLIMITED, JoinProblem
from meander.place.nova.queries.aggregate import FAN_IN
from meander.place.nova.settings import NovaSettings, Overload

KEYS = ("sigma", "overload", "least_free_tps", "bandwidth_tps", "ms_per_w", "ms_per_price", "fan_in")
MECHANISM = "mechanism"
"""The option of a query that names the mechanism that places it at first."""
OVERLOADS = {each.name.lower(): each for each in (Overload.EXPAND, Overload.REFUSE)}


@dataclass(frozen=True, slots=True)
class NovaQuerySettings:
    """How finely joins are split, and what a node and a replica may take."""

    nova: NovaSettings = field(default_factory=NovaSettings)
    least_free_tps: float = 0.0
    """A node with less free takes nothing more."""
    bandwidth_tps: float = UNLIMITED
    """The most that one replica may take in."""
    ms_per_w: float = 0.0
    """The latency that a watt of a node's power is worth: nodes that draw less are nearer."""
    ms_per_price: float = 0.0
    """The same for its price of an hour."""

    fan_in: int = FAN_IN
    """How many partial results of an aggregate one node merges, at most."""

    @staticmethod
    def of(values: Any) -> NovaQuerySettings:
        """The settings as users write them; raises for one that is not known or not allowed."""
        if not isinstance(values, Mapping):
            raise InputError("the settings of Nova have a section of their own, [nova]")
        return NovaQuerySettings().overlaid(values)

    def overlaid(self, values: Mapping[str, Any]) -> NovaQuerySettings:
        """These settings but for some; raises for one that is not known or not allowed."""
        for name in values:
            if name not in KEYS:
                raise unknown("setting of Nova", name, KEYS, "settings of Nova")
        nova, sigma, overload = self.nova, values.get("sigma"), values.get("overload")
        if sigma is not None:
            nova = replace(nova, sigma=None if sigma == "auto" else _number("sigma", sigma))
        if overload is not None:
            if overload not in OVERLOADS:
                raise unknown("value of overload", str(overload), OVERLOADS, "values of overload")
            nova = replace(nova, overload=OVERLOADS[overload])
        numbers: dict[str, Any] = {name: _number(name, values[name]) for name in KEYS[2:] if name in values}
        if not numbers.get("bandwidth_tps", 1.0) > 0:
            raise InputError("bandwidth_tps must be more than 0: it is what one part of a join may take in")
        if "fan_in" in numbers:
            numbers["fan_in"] = int(numbers["fan_in"])
            if numbers["fan_in"] < 2:
                raise InputError("fan_in must be at least 2: it is how many partial results one node merges")
        return replace(self, nova=nova, **numbers)

    def with_options(self, options: Iterable[tuple[str, str]]) -> NovaQuerySettings:
        """These settings with what a query has of its own; raises for an option that no query has."""
        values: dict[str, Any] = {}
        for name, text in options:
            if name not in (MECHANISM, *KEYS):
                raise unknown("option of a query", name, (MECHANISM, *KEYS), "options")
            if name != MECHANISM:
                values[name] = text if name == "overload" or text == "auto" else _read(name, text)
        return self.overlaid(values)

    def limited(self, problem: JoinProblem, topology: Topology) -> JoinProblem:
        """The problem with these limits, and nodes as far away as they are dear."""
        heights = problem.heights + self.extra_ms(topology)[: problem.nodes]
        least, most = self.least_free_tps, self.bandwidth_tps
        return replace(problem, heights=heights, least_free_tps=least, bandwidth_tps=most)

    def extra_ms(self, topology: Topology) -> NDArray[np.float64]:
        """The height that power and price add to each node: half on the way in and half out."""
        nodes = topology.nodes
        worth = nodes.power_w.astype(np.float64) * self.ms_per_w
        return np.asarray((worth + nodes.price_per_h.astype(np.float64) * self.ms_per_price) / 2)


def _number(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:
        raise InputError(f"{name} must be a number that is not negative, not {value!r}")
    return float(value)


def _read(name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise InputError(f"{name} must be a number that is not negative, not {text!r}") from None
