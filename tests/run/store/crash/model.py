"""A store as a newcomer would write it: dictionaries of lists, no journal. What the real one shows must be equal."""

from __future__ import annotations

import copy
from typing import Any

from meander.run.channels.base import NO_WATERMARK
from meander.run.store.commit import Commit
from meander.run.store.records.record import Forgotten


class ModelChannel:
    def __init__(self, ends: tuple[int | None, int | None, int]) -> None:
        self.ends = ends
        self.head = self.tail = self.appended = self.consumed = 0
        self.watermark: int | None = None
        self.consumed_watermark: int | None = None
        self.records: list[tuple[int, str, Any]] = []

    def put(self, kind: str, value: Any) -> None:
        self.records.append((self.tail, kind, value))
        self.tail += 1
        if kind == "row":
            self.appended += 1
        if kind == "watermark":
            self.watermark = _higher(self.watermark, value)

    def consume(self, position: int) -> None:
        self.consumed += sum(k == "row" and p < position for p, k, _ in self.records)
        for value in [v for p, k, v in self.records if k == "watermark" and p < position]:
            self.consumed_watermark = _higher(self.consumed_watermark, value)
        self.records = [r for r in self.records if r[0] >= position]
        self.head = position


def _higher(old: int | None, new: int) -> int:
    return new if old is None else max(old, new)


class Model:
    def __init__(self) -> None:
        self.channels: dict[int, ModelChannel] = {}
        self.state: dict[tuple[int, int, int], list[int]] = {}
        self.batches: dict[str, int] = {}
        self.versions: dict[int, int] = {}
        self.counters: dict[tuple[int, str], int] = {}
        self.acknowledged: dict[str, int] = {}
        self.records: dict[tuple[str, Any], Any] = {}

    def copy(self) -> Model:
        return copy.deepcopy(self)

    def apply(self, commit: Commit) -> None:
        for spec in commit.add:
            self.channels[spec.channel] = ModelChannel((spec.sender, spec.receiver, spec.delay_ms))
        for rewire in commit.rewire:
            sender, _, delay = self.channels[rewire.channel].ends
            self.channels[rewire.channel].ends = (
                sender,
                rewire.receiver,
                delay if rewire.delay_ms is None else rewire.delay_ms,
            )
        for id_, position in commit.consumed.items():
            self.channels[id_].consume(position)
        for passed in commit.passed:
            for id_, length, watermark in zip(passed.channels, passed.lengths, passed.watermarks, strict=True):
                for _ in range(length):
                    self.channels[id_].put("row", None)
                if watermark != NO_WATERMARK:
                    self.channels[id_].put("watermark", int(watermark))
                self.channels[id_].consume(self.channels[id_].tail)
        self._apply_state(commit)
        for append in commit.appends:
            values = [] if append.table is None else append.table.column("v").to_pylist()
            for index, id_ in enumerate(append.channels.tolist()):
                start = append.offsets[index]
                for value in values[start : start + append.lengths[index]]:
                    self.channels[id_].put("row", value)
                if append.watermarks[index] != NO_WATERMARK:
                    self.channels[id_].put("watermark", int(append.watermarks[index]))
                if index in append.markers:
                    self.channels[id_].put("marker", append.markers[index].reconfiguration)
        self._apply_facts(commit)

    def _apply_state(self, commit: Commit) -> None:
        for drop in commit.state_drops:
            for fragment, operator, bucket in zip(
                drop.fragments.tolist(), drop.operators.tolist(), drop.buckets.tolist(), strict=True
            ):
                for key in list(self.state):
                    passed = key[2] < bucket if drop.below else key[2] == bucket
                    if key[:2] == (fragment, operator) and passed:
                        del self.state[key]
        for append in commit.state_appends:
            values = append.table.column("k").to_pylist()
            keys = zip(append.fragments.tolist(), append.operators.tolist(), append.buckets.tolist(), strict=True)
            for index, key in enumerate(keys):
                start, length = append.offsets[index], append.lengths[index]
                if length:
                    self.state.setdefault(key, []).extend(values[start : start + length])

    def _apply_facts(self, commit: Commit) -> None:
        for key, count in commit.counters.items():
            self.counters[key] = self.counters.get(key, 0) + count
        self.versions |= {int(f): v for f, v in commit.versions.items()}
        self.acknowledged.update(commit.acknowledged)
        for change in commit.records:
            self.records.pop((change.kind, change.key), None)
            if not isinstance(change, Forgotten):
                self.records[change.kind, change.key] = change
        for fragment in commit.retire:
            self.state = {k: v for k, v in self.state.items() if k[0] != fragment}
            self.versions.pop(fragment, None)
            self.records.pop(("slot", fragment), None)
            self.counters = {k: v for k, v in self.counters.items() if k[0] != fragment}
            self.batches = {w: b for w, b in self.batches.items() if not w.startswith(f"fragment {fragment} ")}
        for removal in commit.remove:
            del self.channels[removal.channel]
        if commit.writer:
            self.batches[commit.writer] = commit.batch_id

    def shown(self) -> dict[str, Any]:
        return {
            "channels": {
                n: {
                    "ends": c.ends,
                    "bounds": (c.head, c.tail),
                    "watermarks": [c.watermark, c.consumed_watermark],
                    "records": c.records,
                    "tuples": (c.appended, c.consumed, c.appended - c.consumed),
                }
                for n, c in sorted(self.channels.items())
            },
            "state": self.state,
            "batches": self.batches,
            "versions": self.versions,
            "counters": self.counters,
            "acknowledged": self.acknowledged,
            "records": self.records,
        }
