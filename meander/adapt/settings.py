"""The settings of the loop: its tolerance, its exploration and its caution."""

from __future__ import annotations

from dataclasses import dataclass
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from meander.model.errors import InputError


@dataclass(frozen=True, slots=True)
class AdaptationSettings:
    """All times in ms."""

    stay_ms: int = 60_000
    """A mechanism stays at least this long, so that it can be judged and queries do not oscillate."""
    period_ms: int = 300_000
    """The interval of planning a query when nothing happens."""
    violated_rounds: int = 2
    """Rounds in a row with a violated demand before something is done about it."""
    margin: float = 0.1
    """Hysteresis: the share of demands that a switch must be expected to win."""
    retry_ms: int = 60_000
    """After a violation that nothing can be done about, the time until the next try; doubles each time up to
    `longest_retry_ms`."""
    longest_retry_ms: int = 1_800_000
    quarantine_ms: int = 600_000
    """A mechanism that raised or took too long is not asked for this time; doubles each time."""
    plans_per_round: int = 50
    """Queries that are planned in one round, as planning may ask every mechanism."""
    dry_run: bool = False
    """Decide and log, but start nothing."""
    zone: str = "UTC"
    """The time zone of `hour` and `weekday` in conditions."""

    def __post_init__(self) -> None:
        for name in ("stay_ms", "period_ms", "retry_ms", "longest_retry_ms", "quarantine_ms"):
            if getattr(self, name) <= 0:
                raise InputError(f"{name} must be positive, not {getattr(self, name)}")
        for name in ("violated_rounds", "plans_per_round"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} must be at least 1, not {getattr(self, name)}")
        if not 0 <= self.margin < 1:
            raise InputError(f"margin must lie between 0 and 1, not {self.margin}")
        try:
            ZoneInfo(self.zone)
        except (ZoneInfoNotFoundError, ValueError):
            raise InputError(f"no time zone {self.zone!r}; write one such as UTC or Europe/Berlin") from None
