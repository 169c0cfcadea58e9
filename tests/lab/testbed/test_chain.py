"""State moves along a chain of processes, all of it, to any stop."""

from __future__ import annotations

import pytest

from lab.testbed.chain import Forwarding, chain


@pytest.mark.slow
def test_state_gets_to_every_stop_either_way() -> None:
    with chain(1, 1_000.0) as stops:
        stops.fill(1_000_000)
        assert stops.bytes == pytest.approx(1_000_000, rel=0.01)
        for forwarding in Forwarding:
            for intermediates in (0, 1):
                move = stops.moved(intermediates, forwarding)
                assert move.bytes > stops.bytes
                assert move.seconds > 0
        stops.fill(100_000)
        assert stops.moved(1).bytes < 200_000
