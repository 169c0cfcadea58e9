"""What a deployment does about nodes that fail and links that are away."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Resilience:
    """Settings of a whole topology."""

    replicas: int = 1
    """On how many of the next nodes towards the cloud a node's last commit has copies; 0 for upstream backup."""
    patience_ms: int | None = None
    """How long event time waits for an input that is cut off; None for as long as that takes."""
