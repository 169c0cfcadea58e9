"""A schedule of trouble: what happens to which process or wire, and when. The same seed gives the same schedule."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from meander.lab.testbed.layout import HOME, Layout
from meander.lab.testbed.wires import Can

FIRST_S, CALM_S = 2.0, 5.0
"""Nothing happens at the very beginning, nor in the last seconds, when everything comes back."""
SHORT_S, LONG_S = 0.3, 9.0
"""How long trouble lasts: some of it is over before anybody has noticed, some makes nodes leave."""


class Kind(StrEnum):
    """What can happen."""

    KILL = "kill"
    PAUSE = "pause"
    CUT = "cut"
    SLOW = "slow"
    MOVE = "move"
    RELINK = "relink"


@dataclass(frozen=True, slots=True)
class Trouble:
    """One thing that happens. `lasts_s` is how long it takes until it is undone; moves are not."""

    at_s: float
    kind: Kind
    target: tuple[str, ...]
    """A host, the two ends of a wire, a node to move to, or a node with its old and new neighbour."""
    lasts_s: float = 0.0

    def __str__(self) -> str:
        lasting = f" for {self.lasts_s:.1f} s" if self.lasts_s else ""
        return f"{self.at_s:5.1f} s  {self.kind} {' - '.join(self.target)}{lasting}"


@dataclass(frozen=True, slots=True)
class Chances:
    """What may happen in a test bed."""

    hosts: tuple[str, ...]
    wires: tuple[tuple[str, str], ...]
    nodes: tuple[str, ...]
    """To which operators may move."""
    links: tuple[tuple[str, str, str], ...] = ()
    """Nodes that can change from one neighbour to another, and back."""

    @staticmethod
    def of(layout: Layout, can: Can, nodes: Sequence[str], links: Sequence[tuple[str, str, str]] = ()) -> Chances:
        wires = tuple(w.ends for w in layout.wires) if Can.CUT in can else ()
        return Chances((HOME, *layout.sites), wires, tuple(nodes), tuple(links))


def schedule(seed: int, seconds: float, chances: Chances, every_s: float = 3.0) -> list[Trouble]:
    """Trouble on average every few seconds; one host or wire has one trouble at a time."""
    rng = random.Random(seed)
    kinds = [Kind.KILL, Kind.PAUSE, Kind.MOVE]
    kinds += [Kind.CUT, Kind.SLOW] if chances.wires else []
    kinds += [Kind.RELINK] if chances.links else []
    busy: dict[tuple[str, ...], float] = {}
    turned: set[tuple[str, str, str]] = set()
    found: list[Trouble] = []
    at_s = FIRST_S
    while (at_s := at_s + rng.expovariate(1 / every_s)) < seconds - CALM_S:
        kind = rng.choice(kinds)
        lasts_s = min(round(rng.uniform(SHORT_S, LONG_S), 1), max(SHORT_S, seconds - CALM_S - at_s))
        target: tuple[str, ...]
        match kind:
            case Kind.KILL | Kind.PAUSE:
                target = (rng.choice(chances.hosts),)
            case Kind.CUT | Kind.SLOW:
                target = rng.choice(chances.wires)
            case Kind.MOVE:
                target, lasts_s = (rng.choice(chances.nodes),), 0.0
            case Kind.RELINK:
                link, lasts_s = rng.choice(chances.links), 0.0
                node, old, new = link
                target = (node, new, old) if link in turned else link
                turned ^= {link}
        if busy.get(target, 0.0) > at_s:
            if kind is Kind.RELINK:
                turned ^= {link}
            continue
        busy[target] = at_s + lasts_s + 1.0
        found.append(Trouble(round(at_s, 1), kind, target, lasts_s))
    return found
