"""The library of placement mechanisms: one file each, listed here in the order people should try them."""

from __future__ import annotations

from meander.model.errors import unknown
from meander.place.mechanisms.base import Mechanism, Metadata
from meander.place.mechanisms.bottom_up import BottomUp
from meander.place.mechanisms.global_optimal import GlobalOptimal
from meander.place.mechanisms.ilp import Ilp
from meander.place.mechanisms.mdcep import Mdcep
from meander.place.mechanisms.mopa import Mopa
from meander.place.mechanisms.producer_consumer import ProducerConsumer
from meander.place.mechanisms.random import Random
from meander.place.mechanisms.relaxation import Relaxation
from meander.place.mechanisms.top_down import TopDown

MECHANISMS: tuple[type[Mechanism], ...] = (
    BottomUp,
    TopDown,
    Ilp,
    Mopa,
    Relaxation,
    GlobalOptimal,
    Mdcep,
    ProducerConsumer,
    Random,
)


def mechanism(name: str) -> Mechanism:
    """A mechanism by its name."""
    table = {m.name: m for m in MECHANISMS}
    if name not in table:
        raise unknown("mechanism", name, table)
    return table[name]()


__all__ = ["MECHANISMS", "Mechanism", "Metadata", "mechanism"]
