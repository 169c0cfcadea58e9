"""The settings of Nova: partitioning, choice of nodes, and dealing with too little room."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from meander.model.errors import InputError
from meander.place.nova.node_choice import EXPAND, REFUSE, SPREAD
from meander.place.nova.partition_count import SIGMA, check_sigma


class Overload(Enum):
    """The treatment of a part of a join for which no node has room."""

    REFUSE = REFUSE
    """The join is not placed, and named."""
    SPREAD = SPREAD
    """It goes where overload hurts least; overloaded nodes are named."""
    EXPAND = EXPAND
    """Streams are split finer than sigma allows, at the price of traffic; parts that then fit nowhere are refused."""


@dataclass(frozen=True, slots=True)
class NovaSettings:
    """The settings of Nova. The defaults place joins near the latency bound and overload no node."""

    sigma: float | None = SIGMA
    """Smaller splits finer; None takes it from the bandwidth threshold (Eq. 8)."""
    overload: Overload = Overload.EXPAND
    sink_weight: float | None = None
    """The weight of the way from a join to its sink against the ways from its sources, per source.

    1 is what tuples experience. Where room near the sink is short, 0.5 (Eq. 1: the sink counts once per join) leaves it
    to those who need it most and is better for all. None chooses: 1 if the sinks could take all, else 0.5.
    """
    by_distance: bool = False
    """Choose the nearest node to the virtual place, not the cheapest."""
    slack: float | None = None
    """Stop searching when no more than this share can be gained; None: 0 for small problems, 0.05 for large ones."""
    improve_s: float = 0.0
    """Seconds for local improvement after placing."""

    def __post_init__(self) -> None:
        if self.sigma is not None:
            check_sigma(self.sigma)
        for what, value in (("sink_weight", self.sink_weight), ("slack", self.slack), ("improve_s", self.improve_s)):
            if value is not None and not value >= 0:
                raise InputError(f"{what} must not be negative, but is {value:g}")
