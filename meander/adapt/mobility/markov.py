"""`markov`: the next attachment by how often it followed the last two, with the moves of the whole line as a prior.

Four tables of counts are asked, the general ones first: the line's by the last attachment, the node's by the last one,
the line's by the last two, the node's by the last two. Each corrects what the one before says,
P = (n(next) + P') / (n + 1), with P' = 0 at the beginning. So a new train profits from the first day, a train with a
habit of its own is believed after a few rounds, and what was never seen has a share. Old counts fade: a new route is
learned. When is the median of the last stays at the place: the node's own, or the line's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from statistics import median
from typing import Any, ClassVar

from meander.adapt.mobility.predictor import Attachment, ExpectedMove
from meander.model.errors import InputError

VERSION = 1
FADES_AT = 32.0
"""From so many moves out of one context on, all its counts are halved."""
STAYS = 16
"""So many stays at a place are remembered."""
OWN_STAYS = 3
"""From so many of its own stays on, a node's count instead of its line's."""
LONGEST_STAYS = 3.0
"""A node that has stayed for so many usual stays has changed its habit: nothing is known about when."""
_SEPARATOR = " > "


@dataclass(slots=True)
class _Chain:
    """The moves of one node, or of one line."""

    counts: dict[str, dict[str, float]] = field(default_factory=dict)
    """By context, the last attachment or the last two, how often each next one followed."""
    stays: dict[str, list[float]] = field(default_factory=dict)
    """The last stays at each attachment, in ms."""

    def moved(self, former: str | None, last: str, now: str, stay_ms: float) -> None:
        for context in (last,) if former is None else (last, former + _SEPARATOR + last):
            counts = self.counts.setdefault(context, {})
            counts[now] = counts.get(now, 0.0) + 1.0
            if sum(counts.values()) > FADES_AT:
                self.counts[context] = {a: c / 2 for a, c in counts.items() if c >= 1.0}
        self.stays.setdefault(last, []).append(stay_ms)
        del self.stays[last][:-STAYS]


@dataclass(slots=True)
class _Whereabouts:
    line: str
    at: str
    since_ms: int
    former: str | None = None


class MarkovPredictor:
    """Implements `Predictor`."""

    NAME: ClassVar[str] = "markov"

    def __init__(self) -> None:
        self._nodes: dict[str, _Chain] = {}
        self._lines: dict[str, _Chain] = {}
        self._where: dict[str, _Whereabouts] = {}

    def moved(self, move: Attachment) -> None:
        found = self._where.get(move.node)
        if found is None:
            self._where[move.node] = _Whereabouts(move.line, move.attachment, move.at_ms)
            return
        if found.at == move.attachment:
            return
        stay_ms = max(0, move.at_ms - found.since_ms)
        for chains, name in ((self._nodes, move.node), (self._lines, move.line)):
            chains.setdefault(name, _Chain()).moved(found.former, found.at, move.attachment, stay_ms)
        self._where[move.node] = _Whereabouts(move.line, move.attachment, move.at_ms, found.at)

    def next(self, node: str, now_ms: int) -> ExpectedMove | None:
        where = self._where.get(node)
        if where is None:
            return None
        shares: dict[str, float] = {}
        for counts in self._tables(node, where):
            total = sum(counts.values())
            names = shares.keys() | counts.keys()
            shares = {a: (counts.get(a, 0.0) + shares.get(a, 0.0)) / (total + 1) for a in names} if total else shares
        if not shares:
            return None
        attachment = max(sorted(shares), key=lambda a: shares[a])
        return ExpectedMove(node, attachment, shares[attachment], self._in_ms(node, where, now_ms))

    def _tables(self, node: str, where: _Whereabouts) -> Iterator[Mapping[str, float]]:
        chains = self._lines.get(where.line, _Chain()), self._nodes.get(node, _Chain())
        contexts = (where.at,) if where.former is None else (where.at, where.former + _SEPARATOR + where.at)
        for context in contexts:
            for chain in chains:
                yield chain.counts.get(context, {})

    def _in_ms(self, node: str, where: _Whereabouts, now_ms: int) -> float | None:
        own = self._nodes.get(node, _Chain()).stays.get(where.at, [])
        line = self._lines.get(where.line, _Chain()).stays.get(where.at, [])
        stays = own if len(own) >= OWN_STAYS else line
        if not stays:
            return None
        usual, passed = median(stays), now_ms - where.since_ms
        return None if passed > LONGEST_STAYS * max(usual, max(stays)) else max(0.0, usual - passed)

    # ---------------------------------------------------------------- what survives

    def as_json(self) -> dict[str, Any]:
        def told(chains: Mapping[str, _Chain]) -> dict[str, Any]:
            return {name: {"counts": c.counts, "stays": c.stays} for name, c in chains.items()}

        where = {n: [w.line, w.at, w.since_ms, w.former] for n, w in self._where.items()}
        return {"version": VERSION, "nodes": told(self._nodes), "lines": told(self._lines), "where": where}

    def learn(self, saved: Mapping[str, Any]) -> None:
        if saved.get("version") != VERSION:
            raise InputError(f"moves of version {saved.get('version')}, but only version {VERSION} can be read")
        for chains, told in ((self._nodes, saved["nodes"]), (self._lines, saved["lines"])):
            for name, chain in told.items():
                counts = {str(c): {str(a): float(n) for a, n in x.items()} for c, x in chain["counts"].items()}
                stays = {str(a): [float(s) for s in x] for a, x in chain["stays"].items()}
                chains[str(name)] = _Chain(counts, stays)
        for node, (line, at, since_ms, former) in saved["where"].items():
            self._where[str(node)] = _Whereabouts(str(line), str(at), int(since_ms), former)
