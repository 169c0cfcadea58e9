"""The idle timeout: how long a fragment's time waits for an input that was cut off.

By default it waits for as long as that takes: nothing is late because a device was away. With a limit, an input that
has been cut off for longer does not hold the others back any more; windows close without it. The watermark that was
reached so is the fragment's floor: what the input brings when it is back, and belongs before the floor, is late.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from meander.model.ids import ChannelId, FragmentId
from meander.run.channels.base import Int64s
from meander.run.fragments.routing import Installed
from meander.run.frames import BEGIN, END, WM
from meander.run.operators.state import npt_bool
from meander.run.store.records.progress import FloorRecord
from meander.run.store.records.record import Change, forget
from meander.run.store.store import Store


class IdleTimeout:
    """The floors of one host's fragments. Without a limit there are none, and asking costs nothing."""

    def __init__(self, store: Store, limit_ms: int | None = None) -> None:
        self.store, self.limit_ms = store, limit_ms

    @property
    def is_limited(self) -> bool:
        return self.limit_ms is not None

    def is_over(self, channels: Sequence[ChannelId]) -> npt_bool:
        """For each channel whether it has been cut off for too long."""
        if self.limit_ms is None:
            return np.zeros(len(channels), np.bool_)
        return self.store.exchange.cut_ms(channels) > self.limit_ms

    def floor(self, fragment: FragmentId) -> int:
        found = self.store.record(FloorRecord, fragment) if self.is_limited else None
        return BEGIN if found is None else found.watermark_ms

    def is_due(self, fragment: Installed) -> bool:
        """Whether an input that is missing for too long holds back what the others have reached."""
        if not self.is_limited:
            return False
        over = self.is_over(fragment.ports)
        if not over.any() or over.all():
            return False
        held = np.maximum(self.store.exchange.watermarks(fragment.ports), BEGIN)
        return int(held[~over].min()) > max(int(held.min()), self.floor(fragment.fragment))


class WatermarkFloors:
    """The floors of a batch's fragments, applied while its ports are read."""

    def __init__(self, idle_timeout: IdleTimeout, fragments: Sequence[Installed], ports: int) -> None:
        self.idle_timeout, self.fragments = idle_timeout, fragments
        self.values = np.array([idle_timeout.floor(f.fragment) for f in fragments], np.int64)
        self._over = np.zeros((ports, len(fragments)), np.bool_)

    def read(self, port: int, channels: Sequence[ChannelId]) -> None:
        """Takes note of the fragments for which a port has been missing for too long."""
        self._over[port] = self.idle_timeout.is_over(channels)

    def late(self, table: pa.Table, rows: Int64s) -> pa.Table:
        """Tuples of one port, whose own watermark is at least the floor; `rows` are their fragments."""
        if not len(table) or (self.values == BEGIN).all():
            return table
        at = table.column_names.index(WM)
        raised = np.maximum(table.column(WM).to_numpy(), self.values[rows])
        return table.set_column(at, table.field(at), pc.cast(pa.array(raised), table.field(at).type))

    def settle(self, held: Int64s, reached: Int64s) -> tuple[Int64s, Int64s, list[Change]]:
        """The watermarks of all ports before and after, and the floors to remember or to forget.

        A port that has been missing for too long goes along with the watermark of the fragment's other ports.
        """
        over = self._over
        waits, missing = (~over).max(axis=0, initial=False), over.max(axis=0, initial=False)
        before, slowest = np.maximum(held.min(axis=0), self.values), reached.min(axis=0)
        others = np.where(over, END, reached).min(axis=0)
        after = np.maximum(np.where(waits, others, before), before)
        records: list[Change] = []
        for k, fragment in enumerate(self.fragments):
            if missing[k] and after[k] > slowest[k]:
                records.append(FloorRecord(fragment.fragment, int(after[k])))
            elif self.values[k] > BEGIN and slowest[k] >= self.values[k]:
                records.append(forget(FloorRecord, fragment.fragment))
        held = np.maximum(held, self.values)
        return held, np.maximum(np.where(over, np.maximum(reached, after), reached), held), records
