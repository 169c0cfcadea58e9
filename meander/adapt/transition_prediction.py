"""The effort of a transition, predicted and measured: the same figures of both, so that they can be compared."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from meander.model.ids import OperatorId

WITH_STATE, BESIDE, AT_ONCE = "with state", "beside", "at once"


@dataclass(frozen=True, slots=True)
class PredictedMove:
    """One operator: how it moves, and the figures that say why."""

    operator: OperatorId
    kind: str
    way: str
    """One of the above: `at once` are operators without state, which move between two tuples."""
    state_bytes: int
    mbps: float | None
    """Bandwidth on the route of its state; None where it is not limited."""
    transfer_s: float
    """How long its state would travel."""
    window_s: float | None
    """How long the old one would answer what had begun; None where that cannot be told."""

    @property
    def why(self) -> str:
        """The figures that speak for its way, in words."""
        if self.way == AT_ONCE:
            return "it has no state"
        state = f"its state of {self.state_bytes:,} bytes"
        if self.window_s is None:
            return f"{state} travels for {self.transfer_s:.2g} s; it cannot begin anew"
        if self.way == WITH_STATE:
            return f"{state} travels for {self.transfer_s:.2g} s; its windows would need {self.window_s:.2g} s to end"
        return f"its windows need {self.window_s:.2g} s to end; {state} would travel for {self.transfer_s:.2g} s"

    def as_json(self) -> dict[str, Any]:
        return {
            "operator": int(self.operator),
            "kind": self.kind,
            "way": self.way,
            "why": self.why,
            "state_bytes": self.state_bytes,
            "mbps": self.mbps,
            "transfer_s": _rounded(self.transfer_s),
            "window_s": None if self.window_s is None else _rounded(self.window_s),
        }


@dataclass(frozen=True, slots=True)
class TransitionPrediction:
    """A transition by one protocol, from the decision to the last effect, waiting included."""

    protocol: str
    seconds: float
    bytes: int
    """State, input that goes to both places, and control messages."""
    overlap_s: float = 0.0
    """Of the seconds: operators run at both places."""
    stop_s: float = 0.0
    """Of the seconds: operators that move with their state stand still."""
    busy_s: float = 0.0
    """How long its bytes occupy the slowest link of their route."""
    phases: int = 0
    """How often slots have to be between two steps."""
    operators: tuple[PredictedMove, ...] = field(default=())

    @property
    def cost_s(self) -> float:
        """Its burden on the query and others, in seconds: standing still, and busy links."""
        return self.stop_s + self.busy_s

    def as_json(self, *, with_operators: bool = True) -> dict[str, Any]:
        found: dict[str, Any] = {
            "protocol": self.protocol,
            "seconds": _rounded(self.seconds),
            "bytes": self.bytes,
            "overlap_s": _rounded(self.overlap_s),
            "stop_s": _rounded(self.stop_s),
        }
        return found | ({"operators": [o.as_json() for o in self.operators]} if with_operators else {})

    @property
    def told(self) -> str:
        """In words."""
        parts = [f"{self.seconds:.2g} s", f"{self.bytes:,} bytes"]
        parts += [f"{self.overlap_s:.2g} s at both places"] if self.overlap_s else []
        ways = Counter(o.way for o in self.operators)
        how = f" ({', '.join(f'{count} {way}' for way, count in ways.items())})" if ways else ""
        return f"{', '.join(parts)} by {self.protocol}{how}"


def told(took: Mapping[str, Any]) -> str:
    """The measured effort of a transition in words, with the predicted one."""
    parts = [f"{took['seconds']:.2f} s with {took['bytes']:,.0f} bytes"]
    parts += [f"{took['overlap_s']:.2g} s of it at both places"] if took.get("overlap_s") else []
    before = took.get("predicted")
    parts += [f"predicted: {before['seconds']:.2g} s, {before['bytes']:,} bytes"] if before else []
    return "; ".join(parts)


def _rounded(seconds: float) -> float:
    return round(seconds, 3)
