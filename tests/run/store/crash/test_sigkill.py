"""A process that commits in a loop is killed with SIGKILL at random moments; what it had reported is there."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

from meander.model.ids import ChannelId
from meander.run.store.commit import slot_writer
from meander.run.store.store import Store

KILLS = 5
CHILD = """
import sys
from meander.model.ids import ChannelId
from meander.run.store.commit import Commit, StateAppend, slot_writer
from meander.run.channels.base import ChannelAppend
from meander.run.store.store import Store, StoreOptions
from tests.run.observe import channel, rows, state_rows

store = Store.open(sys.argv[1], StoreOptions(segment_bytes=60_000, memory_budget_bytes=10_000))
if not store.exchange.channels():
    store.commit(Commit(add=(channel(0),)))
batch = store.last_batch(slot_writer(0))
batch = -1 if batch is None else batch
while True:
    batch += 1
    values = range(batch * 20, batch * 20 + 20)
    head = store.exchange.start(ChannelId(0))
    store.commit(Commit(
        slot_writer(0), batch,
        consumed={ChannelId(0): max(head, (batch - 30) * 20)},
        appends=(ChannelAppend.one(ChannelId(0), rows(*values)),),
        state_appends=(StateAppend.sliced(state_rows(batch), 0, [1], [batch % 7], [1]),),
    ))
    print(batch, flush=True)
"""


def test_nothing_reported_is_lost_and_nothing_is_double_after_sigkill(tmp_path: Path) -> None:
    rng = random.Random()
    for _ in range(KILLS):
        with subprocess.Popen([sys.executable, "-c", CHILD, str(tmp_path)], stdout=subprocess.PIPE, text=True) as child:
            assert child.stdout is not None
            reported = -1
            for _ in range(rng.randint(1, 120)):
                line = child.stdout.readline()
                assert line, "the child ended by itself"
                reported = int(line)
            child.kill()
            reported = max([reported, *(int(line) for line in child.stdout.read().split("\n")[:-1])])
        store = Store.open(tmp_path)
        last = store.last_batch(slot_writer(0))
        assert last is not None
        assert reported <= last <= reported + 1
        start = store.exchange.start(ChannelId(0))
        end = store.exchange.end(ChannelId(0))
        values = store.exchange.read(ChannelId(0), start, end).table.column("v").to_pylist()
        assert end == (last + 1) * 20
        assert values == list(range(start, end))
        state = store.state.read([store.state.fragments()[0]], 0).table
        assert state is not None
        assert sorted(state.column("k").to_pylist()) == list(range(last + 1))
        store.close()
