"""The settings of a deployment for nodes that fail or move and links that are away."""

from __future__ import annotations

from dataclasses import dataclass

from meander.model.errors import InputError


@dataclass(frozen=True, slots=True)
class Resilience:
    """Settings of a whole topology."""

    replicas: int = 1
    """On how many of the next nodes towards the cloud a node's last commit has copies; 0 for upstream backup."""
    idle_timeout_ms: int | None = None
    """The time for which event time waits for an input that is cut off; None for as long as that takes."""
    detour: float = 1.5
    """The factor over a fresh placement's latency that data may take before operators move after it."""

    def __post_init__(self) -> None:
        check_detour(self.detour)


def check_detour(detour: float) -> None:
    """Raises for a detour that no placement could keep."""
    if not detour >= 1:
        raise InputError(f"detour must be at least 1, the length of a way without one, not {detour:g}")
