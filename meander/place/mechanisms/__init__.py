"""The library of placement mechanisms: one file each, listed here in the order people should try them."""

from __future__ import annotations

from meander.model.errors import unknown
from meander.place.mechanisms.base import Mechanism, Metadata
from meander.place.mechanisms.bottom_up import BottomUp

MECHANISMS: tuple[type[Mechanism], ...] = (BottomUp,)


def mechanism(name: str) -> Mechanism:
    """A mechanism by its name."""
    table = {m.name: m for m in MECHANISMS}
    if name not in table:
        raise unknown("mechanism", name, table)
    return table[name]()


__all__ = ["MECHANISMS", "Mechanism", "Metadata", "mechanism"]
