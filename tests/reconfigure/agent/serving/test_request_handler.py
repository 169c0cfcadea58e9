"""Orders of the coordinator at a site: what it hears of a change is on the site's disk, whatever `durability` says."""

from __future__ import annotations

import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from meander.membership.fence import Fence
from meander.membership.protocol import PROTOCOL, Epoch
from meander.reconfigure.agent.agent import Agent
from meander.reconfigure.agent.serving.peers import PeerDirectory
from meander.reconfigure.agent.serving.replication import Replication
from meander.reconfigure.agent.serving.request_handler import AgentRequestHandler
from meander.reconfigure.codec import encode
from meander.reconfigure.messages import Answer, Done, Mark, Message, PartStatus, PartStatuses, Poll
from meander.run.store.commit import Commit
from meander.run.store.records.deployment import NumbersRecord
from meander.run.store.store import Store, StoreOptions
from tests.run.store.crash.lying_disk import LyingDisk

HOME = Path("site")
EPOCH = Epoch(1, "coordinator")


class Committing:
    """An agent that commits one record with each message, and answers as it was told to."""

    def __init__(self, store: Store, answer: Answer) -> None:
        self.host, self.answer, self.count = SimpleNamespace(store=store), answer, 0
        self.changes: dict[int, Any] = {}
        self.remote_channels = SimpleNamespace(kafka=None, pulling=None)

    def take(self, message: Message) -> Answer:
        self.count += 1
        self.host.store.commit(Commit(records=(NumbersRecord(self.count, 1, 1),)))
        return self.answer


def told(message: Message, answer: Answer, seed: int) -> int:
    """How much of an order is there after the power failed just after its answer."""
    disk = LyingDisk()
    store = Store.open(HOME, StoreOptions(sync_interval_s=None), files=disk)
    agent = cast(Agent, Committing(store, answer))
    peers = cast(PeerDirectory, SimpleNamespace())
    handler = AgentRequestHandler("site", agent, peers, Replication(store), Fence())
    handler.order(message.ACTION, {**encode(message), **EPOCH.as_json(), "protocol": PROTOCOL})
    again = Store.open(HOME, StoreOptions(sync_interval_s=None), files=disk.crash(random.Random(seed)))
    found = again.record(NumbersRecord)
    return 0 if found is None else found.fragment


@pytest.mark.parametrize(
    ("message", "answer"),
    [
        (Mark((3,)), Done()),
        (Poll((3,)), PartStatuses({3: PartStatus(drained=True)})),
        (Poll((3,)), PartStatuses({3: PartStatus(arrived=True)})),
        (Poll((3,)), PartStatuses({2: PartStatus(), 3: PartStatus(complete=True)})),
    ],
)
def test_a_start_of_the_machine_takes_nothing_back_that_others_act_on(message: Message, answer: Answer) -> None:
    assert {told(message, answer, seed) for seed in range(12)} == {1}


def test_a_poll_that_says_nothing_new_does_not_wait_for_the_disk() -> None:
    assert 0 in {told(Poll((3,)), PartStatuses({3: PartStatus(prepared=True)}), seed) for seed in range(12)}
