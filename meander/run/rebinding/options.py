"""The options of a host's rebinding."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from meander.model.errors import InputError, unknown
from meander.run.rebinding.policies import POLICIES
from meander.run.step.measures import WINDOW

OFF, USUAL = "off", "steady"


class Installing(StrEnum):
    """The way in which a new binding takes effect."""

    BLOCKING = "blocking"
    """All slots meet at a barrier; then all fragments change slots at once."""
    NON_BLOCKING = "non-blocking"
    """Each slot gives its fragments away before its next step; no slot waits."""


@dataclass(frozen=True, slots=True)
class RebindingOptions:
    """The policy of rebinding, its interval, and the way in which its decisions take effect."""

    policy: str = USUAL
    period_s: float = 2.0
    installing: Installing = Installing.NON_BLOCKING
    seed: int = 0
    window: int = WINDOW
    """Tuples of a fragment over which its time per tuple is taken."""

    def __post_init__(self) -> None:
        if self.period_s <= 0:
            raise InputError(f"rebinding: period_s is {self.period_s}; it must be above zero")
        if self.window < 1:
            raise InputError(f"rebinding: window is {self.window}; it must be at least 1")


def rebinding_by(name: str, slots: int) -> RebindingOptions | None:
    """Rebinding by the policy of a name, as people give it; None when it is off, or when there is one slot only."""
    names = [p.name for p in POLICIES]
    if name != OFF and name not in names:
        raise unknown("rebinding policy", name, (*names, OFF), plural="rebinding policies")
    return None if name == OFF or slots == 1 else RebindingOptions(name)
