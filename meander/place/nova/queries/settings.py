"""The settings of queries that Nova places in a running service: the section `[nova]` of the settings file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meander.model.errors import InputError, unknown
from meander.model.topology.graph import Topology
from meander.place.nova.problem import UNLIMITED, JoinProblem
from meander.place.nova.settings import NovaSettings, Overload

KEYS = ("sigma", "overload", "least_free_tps", "bandwidth_tps", "ms_per_w", "ms_per_price")
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

    @staticmethod
    def of(values: Any) -> NovaQuerySettings:
        """The settings as users write them; raises for one that is not known or not allowed."""
        if not isinstance(values, Mapping):
            raise InputError("the settings of Nova have a section of their own, [nova]")
        for name in values:
            if name not in KEYS:
                raise unknown("setting of Nova", name, KEYS, "settings of Nova")
        found = NovaQuerySettings()
        nova, sigma, overload = found.nova, values.get("sigma"), values.get("overload")
        if sigma is not None:
            nova = replace(nova, sigma=None if sigma == "auto" else _number("sigma", sigma))
        if overload is not None:
            if overload not in OVERLOADS:
                raise unknown("value of overload", str(overload), OVERLOADS, "values of overload")
            nova = replace(nova, overload=OVERLOADS[overload])
        least = _number("least_free_tps", values.get("least_free_tps", 0.0))
        most = _number("bandwidth_tps", values.get("bandwidth_tps", UNLIMITED))
        if not most > 0:
            raise InputError("bandwidth_tps must be more than 0: it is what one part of a join may take in")
        weights = (_number(name, values.get(name, 0.0)) for name in ("ms_per_w", "ms_per_price"))
        return NovaQuerySettings(nova, least, most, *weights)

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
