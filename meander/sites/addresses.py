"""Addresses at which somebody listens, and those at which others can reach it."""

from __future__ import annotations

EVERYWHERE = frozenset({"", "0.0.0.0", "::", "[::]", "*"})


def is_everywhere(listen: str) -> bool:
    """Whether `host:port` stands for all addresses of a machine, so that nobody elsewhere can use it."""
    return listen.rsplit(":", 1)[0] in EVERYWHERE
