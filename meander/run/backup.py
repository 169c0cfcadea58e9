"""Upstream backup: the state of a fragment can be built anew from what its senders have kept.

For fragments whose commits have no copy elsewhere, senders keep what the fragment has consumed since its last base: its
state at some moment, kept by them as well. When the fragment's node fails, its state is gone; base and tuples give it
back, tuple by tuple through the operators' own steps, without a result being sent again. A new base lets the senders
forget; it is taken every few seconds, at a moment when state and positions fit together, as all commits are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from meander.model.ids import ChannelId, FragmentId
from meander.run.commit import Commit, RemoveChannel, StateCopy, StateDrop, Writer
from meander.run.exchange.base import NO_WATERMARK, ChannelAppend, ChannelSpec
from meander.run.frames import END
from meander.run.routing import Installed, Routing
from meander.run.runner import Runner
from meander.run.step import Stepper
from meander.run.store import Store

BASES = 1 << 41
"""Bases are kept under the fragment's number plus this."""
_SCRATCH = 1 << 42
"""Channels for tuples that are taken again are numbered from here on."""
INTERVAL_S = 5.0


def base_of(fragment: FragmentId) -> FragmentId:
    return FragmentId(BASES + fragment)


def has_state(fragment: Installed) -> bool:
    return any(stage.states for stage in fragment.bound.template.stages)


def lost_note(fragment: FragmentId) -> str:
    return f"lost {fragment}"


class Backup:
    """The bases of one host's fragments."""

    def __init__(self, store: Store, routing: Routing, runner: Runner, clock: Callable[[], float]) -> None:
        self.store, self.routing, self.runner = store, routing, runner
        self._clock, self._last = clock, clock()

    def tick(self) -> int:
        """Takes new bases when it is time; says of how many fragments."""
        if self._clock() - self._last < INTERVAL_S:
            return 0
        self._last = self._clock()
        found = [f for f in self.routing.fragments.values() if has_state(f) and not self.is_lost(f.fragment)]
        if found:
            copies = tuple(StateCopy(f.fragment, base_of(f.fragment)) for f in found)
            self.store.commit(Commit(state_copies=copies, forget=tuple(p for f in found for p in f.ports)))
        return len(found)

    def is_lost(self, fragment: FragmentId) -> bool:
        return bool(self.store.note(lost_note(fragment)))

    def lose(self, fragments: Iterable[FragmentId]) -> None:
        """The state of these fragments is gone with their node."""
        for fragment in fragments:
            keys = self.store.state.operators(fragment)
            drops = tuple(StateDrop.of(key, [fragment], [END], below=True) for key in keys)
            self.store.commit(Commit(state_drops=drops, notes={lost_note(fragment): 1}))

    def rebuild(self, fragment: Installed) -> int:
        """Gives a fragment that does not run its state back; says from how many tuples. A crash begins it again."""
        exchange, own = self.store.exchange, fragment.fragment
        tables = [exchange.kept(p) for p in fragment.ports]
        reached = exchange.watermarks(fragment.ports).tolist()
        scratch = tuple(ChannelId(_SCRATCH + 64 * own + n) for n in range(len(fragment.ports)))
        known = set(exchange.channels())
        left = tuple(RemoveChannel(c, discard=True) for c in scratch if c in known)
        if left:
            self.store.commit(Commit(remove=left))
        self.store.commit(
            Commit(
                add=tuple(ChannelSpec(c, t.schema, None, own) for c, t in zip(scratch, tables, strict=True)),
                appends=tuple(
                    ChannelAppend.one(c, t if len(t) else None, None if mark == NO_WATERMARK else mark)
                    for c, t, mark in zip(scratch, tables, reached, strict=True)
                ),
                state_copies=(StateCopy(base_of(own), own),),
            )
        )
        routing = Routing(1)
        routing.install([replace(fragment, slot=0, ports=scratch, outputs=tuple(() for _ in fragment.outputs))])
        stepper = Stepper(self.store, routing, self.runner)
        writer = Writer(f"fragment {own} rebuilt {self.store.commits}")
        number = 0
        while stepper.has_work(0):
            number += 1
            stepper.step(0, number, writer)
        remove = tuple(RemoveChannel(c, discard=True) for c in scratch)
        self.store.commit(Commit(remove=remove, notes={lost_note(own): None}))
        return sum(map(len, tables))
