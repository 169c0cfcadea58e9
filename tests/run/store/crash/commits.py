"""Random commits that fit a model: appends, consumption, state, channels that come and go."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

from meander.deploy.markers import Marker, MarkerAction
from meander.model.ids import ChannelId, FragmentId
from meander.run.channels.base import NO_WATERMARK, ChannelAppend
from meander.run.store.commit import Commit, Passed, RemoveChannel, Rewire, StateAppend, StateDrop, slot_writer
from meander.run.store.records.deployment import SlotCountRecord, SlotRecord
from meander.run.store.records.progress import DeliveryRecord
from meander.run.store.records.record import Change, forget
from tests.run.observe import channel, rows, state_rows
from tests.run.store.crash.model import Model


def random_commit(model: Model, rng: random.Random, slot: int = 0) -> Commit:
    """A commit that must be accepted; every value in it is new."""
    ids = list(model.channels)
    structure = _structure(model, ids, rng) if rng.random() < 0.3 else {}
    removed = {r.channel for r in structure.get("remove", ())}
    ids = [i for i in ids if i not in removed]
    consumed = {
        ChannelId(i): rng.randint(model.channels[i].head, model.channels[i].tail) for i in ids if rng.random() < 0.4
    }
    if rng.random() < 0.2:  # everything: segments become empty
        consumed = {ChannelId(i): model.channels[i].tail for i in ids}
    consumed |= {r: model.channels[r].tail for r in removed if rng.random() < 0.5}
    empty = [i for i in ids if consumed.get(ChannelId(i), model.channels[i].head) == model.channels[i].tail]
    passed = [i for i in empty if rng.random() < 0.3]
    writer = slot_writer(slot)
    return Commit(
        writer,
        model.batches.get(writer, -1) + 1 + (rng.random() < 0.1),
        versions={FragmentId(rng.randint(0, 3)): 1} if rng.random() < 0.3 else {},
        consumed=consumed,
        passed=(_passed(passed, rng),) if passed else (),
        appends=tuple(_append(ids, rng) for _ in range(rng.randint(0, 2)) if ids),
        state_drops=tuple(_drop(rng) for _ in range(rng.randint(0, 1))),
        state_appends=tuple(_state(rng) for _ in range(rng.randint(0, 2))),
        retire=(FragmentId(rng.randint(0, 3)),) if rng.random() < 0.05 else (),
        counters={(FragmentId(rng.randint(0, 3)), "late"): rng.randint(1, 5)} if rng.random() < 0.3 else {},
        acknowledged={"out": rng.randint(0, 1000)} if rng.random() < 0.2 else {},
        records=tuple(_record(rng) for _ in range(rng.randint(1, 3))) if rng.random() < 0.2 else (),
        **structure,
    )


def _record(rng: random.Random) -> Change:
    """One with its last value in the same commit perhaps."""
    name, fragment = rng.choice("ab"), FragmentId(rng.randint(0, 3))
    changes: list[Change] = [
        DeliveryRecord(name, rng.randint(0, 9), rng.choice([None, {"offset": [1, 2]}])),
        forget(DeliveryRecord, name),
        SlotRecord(fragment, rng.randint(0, 1)),
        forget(SlotRecord, fragment),
        SlotCountRecord(rng.randint(1, 2)),
    ]
    return rng.choice(changes)


def _structure(model: Model, ids: list[int], rng: random.Random) -> Mapping[str, Any]:
    match rng.randint(0, 2) if ids else 0:
        case 0:
            ends = [rng.choice([None, FragmentId(rng.randint(0, 9))]) for _ in range(2)]
            number = max([*ids, 0]) + rng.randint(1, 3)
            return {"add": (channel(number, sender=ends[0], receiver=ends[1], delay_ms=rng.choice([0, 0, 7])),)}
        case 1:
            return {
                "rewire": (Rewire(ChannelId(rng.choice(ids)), FragmentId(rng.randint(0, 9)), rng.choice([None, 3])),)
            }
        case _:
            return {"remove": (RemoveChannel(ChannelId(rng.choice(ids)), discard=True),)}


def _passed(ids: list[int], rng: random.Random) -> Passed:
    watermarks = [rng.choice([NO_WATERMARK, rng.randint(0, 10**6)]) for _ in ids]
    return Passed.of(ids, [rng.randint(0, 3) for _ in ids], watermarks)


def _append(ids: list[int], rng: random.Random) -> ChannelAppend:
    chosen = [rng.choice(ids) for _ in range(rng.randint(1, 5))]
    lengths = [rng.choice([0, 1, 2, 10, 100]) for _ in chosen]
    table = rows(*(rng.randint(0, 10**6) for _ in range(sum(lengths)))) if sum(lengths) else None
    watermarks = [rng.choice([NO_WATERMARK, rng.randint(0, 10**6)]) for _ in chosen]
    markers = {i: Marker.of(rng.randint(0, 99), {(FragmentId(1), 1): MarkerAction.DRAIN}) for i in range(len(chosen))}
    return ChannelAppend.sliced(table, chosen, lengths, watermarks, markers if rng.random() < 0.1 else {})


def _state(rng: random.Random) -> StateAppend:
    count = rng.randint(1, 4)
    lengths = [rng.choice([0, 1, 5, 50]) for _ in range(count)]
    table = state_rows(*(rng.randint(0, 10**6) for _ in range(sum(lengths))))
    fragments = [rng.randint(0, 3) for _ in range(count)]
    return StateAppend.sliced(table, rng.randint(0, 1), fragments, [rng.randint(0, 5) for _ in range(count)], lengths)


def _drop(rng: random.Random) -> StateDrop:
    fragments = [rng.randint(0, 3) for _ in range(2)]
    return StateDrop.of(rng.randint(0, 1), fragments, [rng.randint(0, 6) for _ in range(2)], below=rng.random() < 0.5)
