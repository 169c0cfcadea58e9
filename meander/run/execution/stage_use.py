"""The ways in which stages run: by a prepared plan, operator by operator, or planned anew for each batch, and why.

Results are the same, so a slow stage is not seen in them: `meander status` and the metrics tell.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

LONGEST_REASON = 120


class ExecutionMode(StrEnum):
    """How a stage's next batch runs."""

    PREPARED = "prepared"
    """A plan is ready."""
    OPERATOR_AT_A_TIME = "operator_at_a_time"
    """The plans of its operators are ready; its own one follows if it runs often."""
    PLAIN = "plain"
    """No plan is ready: it has not run yet, or the last batch failed with one."""
    REFUSED = "refused"
    """Its plan cannot be prepared, so Spark plans every batch anew."""


@dataclass(frozen=True, slots=True)
class StageUse:
    """The stages of all fragments that are installed, each once, and what was run since the host began."""

    stages: Mapping[str, int] = field(default_factory=lambda: dict.fromkeys(ExecutionMode, 0))
    """By how their next batch runs."""
    refused: Mapping[str, int] = field(default_factory=dict)
    """Those that are refused, by reason."""
    runs: Mapping[str, int] = field(default_factory=dict)
    """Plans that ran: prepared, plain or on executors."""
    evicted: int = 0
    """Plans that were given up because nothing used them any more."""

    @staticmethod
    def of(modes: Iterable[tuple[ExecutionMode, str | None]], runs: Mapping[str, int], evicted: int) -> StageUse:
        """Of each stage's mode, with the reason why it is refused if it is."""
        stages, refused = dict.fromkeys((m.value for m in ExecutionMode), 0), Counter[str]()
        for mode, reason in modes:
            stages[mode.value] += 1
            if mode is ExecutionMode.REFUSED:
                refused[(reason or "unknown")[:LONGEST_REASON]] += 1
        return StageUse(stages, dict(refused), dict(runs), evicted)


def in_words(stages: Mapping[str, int], refused: Mapping[str, int]) -> str:
    """For people, from what `StageUse` has as JSON too.

    >>> in_words({"prepared": 3, "operator_at_a_time": 2, "refused": 1}, {"its physical plan has Python": 1})
    'stages: 3 prepared, 2 operator at a time, 1 refused (its physical plan has Python)'
    >>> in_words({}, {})
    'stages: none'
    """
    shown = [
        f"{count} {mode.replace('_', ' ')}" for mode, count in stages.items() if count and mode != ExecutionMode.REFUSED
    ]
    shown += [f"{count} refused ({reason})" for reason, count in refused.items()]
    return f"stages: {', '.join(shown) or 'none'}"
