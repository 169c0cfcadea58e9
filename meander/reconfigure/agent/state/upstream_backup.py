"""Upstream backup: the state of a fragment can be built anew from what its senders have kept.

For fragments whose commits have no copy elsewhere, senders keep what the fragment has consumed since its last base: its
state at some moment, kept by them as well. When the fragment's node fails, its state is gone; base and tuples give it
back, tuple by tuple through the operators' own steps, without a result being sent again. A new base lets the senders
forget; it is taken every few seconds, at a moment when state and positions fit together, as all commits are. A step in
which a fragment's watermark floor changes takes one too: between two bases the floor is the same for all tuples.

The same base and tuples build a fragment's state at another node, where state moves by replay.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import replace

import pyarrow as pa

from meander.model.errors import InputError
from meander.model.ids import ChannelId, FragmentId
from meander.run.channels.base import NO_WATERMARK, ChannelAppend, ChannelSpec
from meander.run.execution.runner import Runner
from meander.run.fragments.routing import Installed, Routing
from meander.run.frames import END
from meander.run.step.backup_bases import base_of
from meander.run.step.step import Stepper
from meander.run.store.commit import Commit, RemoveChannel, Rewire, StateCopy, StateDrop, Writer
from meander.run.store.records.progress import LostStateRecord
from meander.run.store.records.record import forget
from meander.run.store.store import Store

_SCRATCH = 1 << 42
"""Channels for tuples that are taken again are numbered from here on."""
INTERVAL_S = 5.0
AGAIN_S = 0.05


def has_state(fragment: Installed) -> bool:
    return any(stage.states for stage in fragment.bound.template.stages)


class UpstreamBackup:
    """The bases of one host's fragments."""

    def __init__(
        self,
        store: Store,
        routing: Routing,
        runner: Runner,
        clock: Callable[[], float],
        idle_timeout_ms: int | None = None,
    ) -> None:
        self.store, self.routing, self.runner, self.idle_timeout_ms = store, routing, runner, idle_timeout_ms
        self._clock, self._last = clock, clock()

    def tick(self) -> int:
        """Takes new bases when it is time; says of how many fragments.

        Fragments that have stopped at a marker keep theirs: their state may be on its way to another node.
        """
        if self._clock() - self._last < INTERVAL_S:
            return 0
        self._last = self._clock()
        stopped = self.routing.drained
        running = [f for f in self.routing.fragments.values() if has_state(f) and f.fragment not in stopped]
        found = [f for f in running if not self.is_lost(f.fragment)]
        if found:
            copies = tuple(StateCopy(f.fragment, base_of(f.fragment)) for f in found)
            self.store.commit(Commit(state_copies=copies, forget=tuple(p for f in found for p in f.ports)))
        return len(found)

    def adopt(self) -> None:
        """Fragments that ran before nobody kept their input get a base, and senders that keep it from now on."""
        found = [f for f in self.routing.fragments.values() if has_state(f) and not self.is_kept(f)]
        if found:
            self.store.commit(
                Commit(
                    rewire=tuple(Rewire(p, f.fragment, keeps=True) for f in found for p in f.ports),
                    state_copies=tuple(StateCopy(f.fragment, base_of(f.fragment)) for f in found),
                    forget=tuple(p for f in found for p in f.ports),
                )
            )

    def is_kept(self, fragment: Installed) -> bool:
        """Whether the senders of a fragment keep what it consumes."""
        channels = self.store.views.channels
        return all(view.keeps for view in channels.many(fragment.ports))

    def kept(self, fragment: Installed) -> list[pa.Table]:
        """The tuples that each port of a fragment has consumed since its base."""
        return [self.store.exchange.kept(p) for p in fragment.ports]

    def is_lost(self, fragment: FragmentId) -> bool:
        return self.store.record(LostStateRecord, fragment) is not None

    def lose(self, fragments: Iterable[FragmentId]) -> None:
        """The state of these fragments is gone with their node."""
        for fragment in fragments:
            keys = self.store.state.operators(fragment)
            drops = tuple(StateDrop.of(key, [fragment], [END], below=True) for key in keys)
            self.store.commit(Commit(state_drops=drops, records=(LostStateRecord(fragment),)))

    def rebuild(self, fragment: Installed) -> int:
        """Gives a fragment that does not run its state back; says from how many tuples. A crash begins it again."""
        exchange, own = self.store.exchange, fragment.fragment
        tables = self.kept(fragment)
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
        outputs = tuple(() for _ in fragment.outputs)
        # What was late has been counted and put aside before.
        routing.install([replace(fragment, slot=0, ports=scratch, outputs=outputs, late={}, is_beside=True)])
        stepper = Stepper(self.store, routing, self.runner, idle_timeout_ms=self.idle_timeout_ms)
        writer = Writer(f"fragment {own} rebuilt {self.store.commits}")
        number = 0
        while stepper.has_work(0) or routing.pauses:
            broken = [p.reason for p in routing.pauses.values() if p.is_for_good]
            if broken:
                raise InputError(f"the state of fragment {own} cannot be built anew: {broken[0]}")
            if routing.pauses:  # the infrastructure fails: it is tried again
                time.sleep(AGAIN_S)
                continue
            number += 1
            stepper.step(0, number, writer)
        remove = tuple(RemoveChannel(c, discard=True) for c in scratch)
        self.store.commit(Commit(remove=remove, records=(forget(LostStateRecord, own),)))
        return sum(map(len, tables))
