"""A schedule of trouble: troubles of processes, links, disks and clocks, with their times, all of it from a seed.

`schedule` makes long ones, in which anything happens now and then. `brief` makes short ones for many seeds: a change of
the running queries, and trouble in the middle of it, most of it of the kinds that are over soon.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from lab.testbed.layout import HOME, Layout
from lab.testbed.links import Can

FIRST_S, CALM_S = 2.0, 5.0
"""Nothing happens at the very beginning, nor in the last seconds, when everything comes back."""
SHORT_S, LONG_S = 0.3, 9.0
"""The duration of trouble: some of it is over before it is noticed, some makes nodes leave."""


BRIEF_S, LASTING_S = (0.2, 1.2), (3.0, 6.0)
"""In brief schedules: most trouble is over soon, some lasts longer than the coordinator's session timeout."""
LASTING, SECOND = 0.2, 0.3
"""The share of it that does, and of schedules that have a second trouble."""
SHIFT_MS = 800
"""By how much a clock may be off: two that are off in opposite directions still agree well enough to join."""
JUMP_MS = 3_600_000
"""By how much it may jump: whoever is so far off is let in again when it is back."""


LOST = 3
"""Cards of a deck for each disk that can be lost."""


class TroubleKind(StrEnum):
    """The kinds of trouble."""

    KILL = "kill"
    """SIGKILL, and a new start."""
    RESTART = "restart"
    """SIGTERM, and a new start when it has ended."""
    PAUSE = "pause"
    CUT = "cut"
    SLOW = "slow"
    LOSE = "lose"
    """SIGKILL, and a new start on an empty disk."""
    FULL = "full"
    """A disk on which there is no room."""
    SLOW_DISK = "slow_disk"
    """A disk on which it takes long until something is written for good."""
    SHIFT = "shift"
    """A clock that jumps a little, and jumps back."""
    JUMP = "jump"
    """A clock that is wrong by an hour, and right again."""
    LAG = "lag"
    """Bytes between two hosts take longer, and not equally long."""
    BREAK = "break"
    """Connections between two hosts are reset in the middle of a message."""
    HALF_OPEN = "half_open"
    """Connections between two hosts of which one end knows nothing any more."""
    ONE_WAY = "one_way"
    """A host does not reach another one, which reaches it."""
    MUTE = "mute"
    """Bytes from a host to another one are lost; those of that one come."""
    MOVE = "move"
    RELINK = "relink"


CHANGES = (TroubleKind.MOVE, TroubleKind.RELINK)
ONE_SIDED = (TroubleKind.ONE_WAY, TroubleKind.MUTE)
PROXIED = (TroubleKind.SLOW, TroubleKind.LAG, TroubleKind.BREAK, TroubleKind.HALF_OPEN, *ONE_SIDED)
"""Trouble that proxies between hosts make."""
CARDS = {
    TroubleKind.PAUSE: 5,
    TroubleKind.CUT: 6,
    TroubleKind.FULL: 4,
    TroubleKind.SLOW_DISK: 3,
    TroubleKind.SHIFT: 3,
    TroubleKind.JUMP: 3,
    TroubleKind.SLOW: 3,
    TroubleKind.LAG: 3,
    TroubleKind.BREAK: 4,
    TroubleKind.HALF_OPEN: 3,
    TroubleKind.ONE_WAY: 3,
    TroubleKind.MUTE: 3,
}
"""Besides these a deck has a kill of every host and one more, and three processes that are told to end: one that starts
again with its Spark takes longer than all the rest."""


@dataclass(frozen=True, slots=True)
class Trouble:
    """One thing that happens. `lasts_s` is how long it takes until it is undone; moves are not."""

    at_s: float
    kind: TroubleKind
    target: tuple[str, ...]
    """A host, the two ends of a link, a node to move to, or a node with its old and new neighbour."""
    lasts_s: float = 0.0
    shift_ms: int = 0

    def __str__(self) -> str:
        lasting = f" for {self.lasts_s:.1f} s" if self.lasts_s else ""
        lasting = f" by {self.shift_ms:+d} ms{lasting}" if self.shift_ms else lasting
        return f"{self.at_s:5.1f} s  {self.kind} {' - '.join(self.target)}{lasting}"


@dataclass(frozen=True, slots=True)
class Chances:
    """The possible troubles of a test bed."""

    hosts: tuple[str, ...]
    host_links: tuple[tuple[str, str], ...]
    nodes: tuple[str, ...]
    """To which operators may move."""
    links: tuple[tuple[str, str, str], ...] = ()
    """Nodes that can change from one neighbour to another, and back."""
    disks: tuple[str, ...] = ()
    """Hosts whose disk can be full."""
    replicated: tuple[str, ...] = ()
    """Hosts whose disk can be lost, as others have replicas."""
    clocks_jump: bool = False
    """Whether clocks can be wrong by an hour."""

    @staticmethod
    def of(
        layout: Layout,
        can: Can,
        nodes: Sequence[str],
        links: Sequence[tuple[str, str, str]] = (),
        *,
        disks: bool = False,
        replicas: bool = False,
        widely: bool = False,
    ) -> Chances:
        """With `widely`, clocks also jump by an hour, and the coordinator's disk is full, too."""
        host_links, sites = tuple(w.ends for w in layout.links) if Can.CUT in can else (), tuple(layout.sites)
        hosts, places = (HOME, *sites), (tuple(nodes), tuple(links))
        full = (hosts if widely else sites) if disks else ()
        return Chances(hosts, host_links, *places, full, sites if replicas else (), widely)

    @property
    def kinds(self) -> list[TroubleKind]:
        """The kinds of trouble that are possible here."""
        found = [TroubleKind.KILL, TroubleKind.RESTART, TroubleKind.PAUSE, TroubleKind.SHIFT, TroubleKind.SLOW_DISK]
        found += [TroubleKind.JUMP] if self.clocks_jump else []
        found += [TroubleKind.MOVE]
        found += [TroubleKind.CUT, *PROXIED] if self.host_links else []
        found += [TroubleKind.RELINK] if self.links else []
        found += [TroubleKind.FULL] if self.disks else []
        return found + ([TroubleKind.LOSE] if self.replicated else [])

    def target(self, kind: TroubleKind, rng: random.Random) -> tuple[str, ...]:
        match kind:
            case TroubleKind.CUT | TroubleKind.SLOW | TroubleKind.LAG | TroubleKind.BREAK | TroubleKind.HALF_OPEN:
                return rng.choice(self.host_links)
            case TroubleKind.ONE_WAY | TroubleKind.MUTE:
                return tuple(rng.sample(rng.choice(self.host_links), 2))
            case TroubleKind.FULL:
                return (rng.choice(self.disks),)
            case TroubleKind.LOSE:
                return (rng.choice(self.replicated),)
            case TroubleKind.MOVE:
                return (rng.choice(self.nodes),)
            case TroubleKind.RELINK:
                return rng.choice(self.links)
            case _:
                return (rng.choice(self.hosts),)


def deck(number: int, chances: Chances) -> list[tuple[TroubleKind, tuple[str, ...]]]:
    """Trouble for as many brief schedules as it has cards, so that each kind happens for any seeds."""
    rng = random.Random(f"deck {number}")
    kinds = [
        kind if kind in chances.kinds else TroubleKind.PAUSE for kind, count in CARDS.items() for _ in range(count)
    ]
    cards = [(kind, chances.target(kind, rng)) for kind in kinds]
    cards += [(TroubleKind.KILL, (host,)) for host in (*chances.hosts, rng.choice(chances.hosts))]
    cards += [(TroubleKind.RESTART, (host,)) for host in (HOME, HOME, rng.choice(chances.hosts[1:]))]
    cards += [(TroubleKind.LOSE, (site,)) for site in chances.replicated for _ in range(LOST)]
    rng.shuffle(cards)
    return cards


def brief(seed: int, seconds: float, chances: Chances) -> list[Trouble]:
    """A change at once, and one or two troubles while it is in flight; longer ones go on into the next one."""
    rng = random.Random(f"brief {seed}")
    size = len(deck(0, chances))
    change = rng.choice([k for k in chances.kinds if k in CHANGES])
    found = [Trouble(round(rng.uniform(0.0, 0.2), 2), change, chances.target(change, rng))]
    cards = [deck(seed // size, chances)[seed % size]]
    if rng.random() < SECOND:
        kind = rng.choice([k for k in CARDS if k in chances.kinds])
        cards.append((kind, chances.target(kind, rng)))
    for kind, target in cards:
        lasting = 1.0 if kind is TroubleKind.LOSE else 0.0 if kind is TroubleKind.KILL else LASTING
        span = LASTING_S if rng.random() < lasting else BRIEF_S
        shift_ms = _shift_ms(kind, rng)
        at_s, lasts_s = round(rng.uniform(0.0, 0.8 * seconds), 2), round(rng.uniform(*span), 1)
        found.append(Trouble(at_s, kind, target, lasts_s, shift_ms))
    return sorted(found, key=lambda t: t.at_s)


def schedule(seed: int, seconds: float, chances: Chances, every_s: float = 3.0) -> list[Trouble]:
    """Trouble on average every few seconds; one host or link has one trouble at a time."""
    rng = random.Random(seed)
    busy: dict[tuple[str, ...], float] = {}
    found: list[Trouble] = []
    at_s = FIRST_S
    while (at_s := at_s + rng.expovariate(1 / every_s)) < seconds - CALM_S:
        kind = rng.choice(chances.kinds)
        lasts_s = min(round(rng.uniform(SHORT_S, LONG_S), 1), max(SHORT_S, seconds - CALM_S - at_s))
        lasts_s = 0.0 if kind in CHANGES else lasts_s
        target = chances.target(kind, rng)
        if busy.get(target, 0.0) > at_s:
            continue
        busy[target] = at_s + lasts_s + 1.0
        shift_ms = _shift_ms(kind, rng)
        found.append(Trouble(round(at_s, 1), kind, target, lasts_s, shift_ms))
    return found


def _shift_ms(kind: TroubleKind, rng: random.Random) -> int:
    by = {TroubleKind.SHIFT: SHIFT_MS, TroubleKind.JUMP: JUMP_MS}.get(kind, 0)
    return rng.choice((-by, by)) if by else 0
