"""Windows: how an unbounded stream is cut into finite pieces. All times are event time in milliseconds."""

from __future__ import annotations

from dataclasses import dataclass

from meander.model.errors import InputError
from meander.model.units import show_duration


def _positive(name: str, value: int) -> None:
    if value <= 0:
        raise InputError(f"a window's {name} must be positive, not {value}")


@dataclass(frozen=True, slots=True)
class Tumbling:
    """Back-to-back windows [k * size, (k + 1) * size)."""

    size_ms: int

    def __post_init__(self) -> None:
        _positive("size", self.size_ms)

    def __str__(self) -> str:
        return f"TUMBLING({show_duration(self.size_ms)})"


@dataclass(frozen=True, slots=True)
class Sliding:
    """Windows of one size that start every `slide`; they overlap when the slide is smaller."""

    size_ms: int
    slide_ms: int

    def __post_init__(self) -> None:
        _positive("size", self.size_ms)
        _positive("slide", self.slide_ms)
        if self.slide_ms > self.size_ms:
            raise InputError(
                f"a sliding window's slide ({show_duration(self.slide_ms)}) must not exceed its size "
                f"({show_duration(self.size_ms)}), otherwise tuples between windows would be dropped"
            )

    def __str__(self) -> str:
        return f"SLIDING({show_duration(self.size_ms)}, {show_duration(self.slide_ms)})"


@dataclass(frozen=True, slots=True)
class Session:
    """A window for each burst of tuples of one key, closed by a gap without tuples."""

    gap_ms: int

    def __post_init__(self) -> None:
        _positive("gap", self.gap_ms)

    def __str__(self) -> str:
        return f"SESSION({show_duration(self.gap_ms)})"


@dataclass(frozen=True, slots=True)
class Count:
    """A window for every `size` tuples of one key, in event-time order; a new one starts every `slide` tuples."""

    size: int
    slide: int

    def __post_init__(self) -> None:
        _positive("size", self.size)
        _positive("slide", self.slide)
        if self.slide > self.size:
            raise InputError(f"a count window's slide ({self.slide}) must not exceed its size ({self.size})")

    def __str__(self) -> str:
        return f"COUNT({self.size})" if self.size == self.slide else f"COUNT({self.size}, {self.slide})"


@dataclass(frozen=True, slots=True)
class Within:
    """Pairs of tuples whose event times are at most this far apart."""

    ms: int

    def __post_init__(self) -> None:
        _positive("span", self.ms)

    def __str__(self) -> str:
        return f"WITHIN {show_duration(self.ms)}"


@dataclass(frozen=True, slots=True)
class Between:
    """Pairs whose right tuple is from `low` to `high` later than the left one; below zero is earlier."""

    low_ms: int
    high_ms: int

    def __post_init__(self) -> None:
        if self.low_ms > self.high_ms:
            low, high = (_signed(each) for each in (self.low_ms, self.high_ms))
            raise InputError(f"the right side would have to be between {low} and {high} later; exchange the two")
        _positive("span", self.ms)

    @property
    def ms(self) -> int:
        """The largest distance of two tuples that meet."""
        return max(abs(self.low_ms), abs(self.high_ms))

    def __str__(self) -> str:
        return f"BETWEEN {_signed(self.low_ms)} AND {_signed(self.high_ms)}"


def _signed(ms: int) -> str:
    return f"-{show_duration(-ms)}" if ms < 0 else show_duration(ms)


Window = Tumbling | Sliding | Session | Count
"""The windows of aggregates."""

PairWindow = Tumbling | Sliding | Within | Between
"""The windows of joins and conjunctions: both tuples in one window, or close to each other."""
