"""The share of emulated links: delays add up along the longest way to a sink."""

from pathlib import Path

import pyarrow as pa

from meander.demo.link_delays import longest_delays_ms
from meander.model.ids import ChannelId, FragmentId
from meander.run.channels.base import ChannelSpec
from meander.run.store.commit import Commit
from meander.run.store.store import Store

SCHEMA = pa.schema([("id", pa.int64())])
NEAR, FAR, BETWEEN, SINK, GONE = map(ChannelId, range(1, 6))
JOIN, MAP = FragmentId(7), FragmentId(8)


def test_the_longest_way_to_a_sink_counts_and_channels_that_are_gone_do_not(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "store")
    wires = ((NEAR, None, JOIN, 2), (FAR, None, JOIN, 20), (BETWEEN, JOIN, MAP, 5), (SINK, MAP, None, 0))
    specs = tuple(ChannelSpec(c, SCHEMA, sender, receiver, delay_ms) for c, sender, receiver, delay_ms in wires)
    store.commit(Commit(add=specs))
    ports = {JOIN: (NEAR, FAR), MAP: (BETWEEN,)}
    found = longest_delays_ms(store.exchange, ports, [SINK, NEAR, GONE])
    assert found == {SINK: 25, NEAR: 2}
    store.close()
