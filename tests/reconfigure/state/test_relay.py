"""Migration queries over sockets: relays in threads with faults in between, and relays as processes."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from meander.reconfigure.state.hops import Forwarding, Hop
from meander.reconfigure.state.job import MoveState
from meander.reconfigure.state.receiving import Receiver
from meander.reconfigure.state.relay import Relay
from meander.reconfigure.state.sending import Sending
from meander.reconfigure.state.sink import StateSink
from meander.reconfigure.state.transfer import Compression, Export, Order, is_complete
from meander.reconfigure.state.wire import Address
from meander.run.store.store import Store
from tests.reconfigure.state.faults import Fault, FaultyProxy
from tests.reconfigure.state.states import KEYS, Append, F, G, appends, filled, held

WANTED: list[Append] = [(key, [(bucket, 30) for bucket in range(5)]) for key in KEYS] * 8


@contextmanager
def receiver(target: Store, transfer: str = "move") -> Iterator[Receiver]:
    listening = Receiver().start()
    listening.expect(StateSink(target, G, transfer))
    yield listening
    listening.close()


@settings(max_examples=30)
@example([], 0, [Fault(42, True)], Forwarding.PIPELINED, Order.OLDEST, Compression.NONE, 200)
@given(
    appends,
    st.integers(0, 3),
    st.lists(st.builds(Fault, st.integers(0, 20_000), st.booleans()), max_size=4),
    st.sampled_from(Forwarding),
    st.sampled_from(Order),
    st.sampled_from(Compression),
    st.sampled_from([200, 2000, 10**6]),
)
def test_state_arrives_over_connections_that_break_and_bits_that_flip(
    wanted: list[Append],
    relays: int,
    faults: list[Fault],
    forwarding: Forwarding,
    order: Order,
    compression: Compression,
    chunk_bytes: int,
) -> None:
    with ExitStack() as stack, tempfile.TemporaryDirectory() as directory:
        source, target = filled(Path(directory) / "a", wanted), Store.open(Path(directory) / "b")
        listening = stack.enter_context(receiver(target))
        hops = [Relay(name=f"relay {n}").start() for n in range(relays)]
        proxy = FaultyProxy((hops[-1] if hops else listening).address, faults)
        path: list[Address] = [*(h.address for h in hops[:-1]), proxy.address]
        path += [listening.address] if hops else []
        export = Export(source, F, order=order, chunk_bytes=chunk_bytes, compression=compression)
        sending = Sending(export, "move", path, forwarding=forwarding, pause_s=0.0, attempts=len(faults) + 2)
        sending.start()
        assert sending.wait(30), sending.error
        assert listening.wait("move", 0)
        assert held(target, G) == held(source, F)
        proxy.close()
        for relay in hops:
            relay.close()


def test_a_path_that_leads_nowhere_is_reported(tmp_path: Path) -> None:
    source, target = filled(tmp_path / "a", WANTED), Store.open(tmp_path / "b")
    relay = Relay(name="edge-3").start()
    nowhere = ("127.0.0.1", 9)
    sending = Sending(Export(source, F), "move", [relay.address, nowhere], pause_s=0.0, attempts=2)
    sending.start()
    assert not sending.wait(20)
    assert sending.state is MoveState.FAILED
    assert sending.connections == 2
    assert sending.error is not None
    assert "edge-3 at" in sending.error
    assert "127.0.0.1:9 cannot be reached" in sending.error
    with receiver(target, "another") as listening:
        sending = Sending(Export(source, F), "move", [relay.address, listening.address])
        sending.start()
        assert not sending.wait(20)
        assert sending.connections == 1
        assert sending.error == "no transfer 'move' is expected here; expected: 'another'"
    relay.close()


@pytest.mark.parametrize("forwarding", list(Forwarding))
def test_a_cancelled_transfer_leaves_nothing_at_the_sink(tmp_path: Path, forwarding: Forwarding) -> None:
    source, target = filled(tmp_path / "a", WANTED), Store.open(tmp_path / "b")
    relay = Relay(Hop(0, 0.8)).start()
    with receiver(target) as listening:
        export = Export(source, F, chunk_bytes=2000)
        sending = Sending(export, "move", [relay.address, listening.address], forwarding=forwarding)
        sending.start()
        assert sending.cancel()
        assert sending.state is MoveState.CANCELLED
        assert held(target, G) == {}
        assert not is_complete(target, G, "move")
        again = Sending(export, "move", [listening.address])
        again.start()
        assert not again.wait(20)
        assert again.error is not None
        assert "was cancelled" in again.error
    relay.close()


def relay_process(listen: str = "127.0.0.1:0", mbps: float = 1000) -> tuple[subprocess.Popen[str], Address]:
    command = [sys.executable, "-m", "meander.reconfigure.state.relay", "--listen", listen]
    process = subprocess.Popen([*command, "--bandwidth-mbps", str(mbps)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    host, _, port = process.stdout.readline().strip().rpartition(":")
    return process, (host, int(port))


@pytest.mark.slow
def test_relay_processes_carry_state_and_a_killed_one_costs_only_what_was_under_way(tmp_path: Path) -> None:
    source, target = filled(tmp_path / "a", WANTED * 8), Store.open(tmp_path / "b")
    first, second = relay_process(), relay_process(mbps=4)
    processes = [first[0], second[0]]
    try:
        with receiver(target) as listening:
            export = Export(source, F, chunk_bytes=4000)
            path = [first[1], second[1], listening.address]
            sending = Sending(export, "move", path, pause_s=0.05, attempts=100)
            sending.start()
            while sending.chunks < 5:
                assert not sending.wait(0.005)
            second[0].kill()
            second[0].wait()
            assert not is_complete(target, G, "move")
            processes.append(relay_process(f"127.0.0.1:{second[1][1]}")[0])
            assert sending.wait(30), sending.error
            assert sending.connections > 1
            whole = sum(map(len, export))
            assert whole <= sending.bytes
            assert held(target, G) == held(source, F)
    finally:
        for process in processes:
            process.kill()
            process.wait()
            assert process.stdout is not None
            process.stdout.close()
