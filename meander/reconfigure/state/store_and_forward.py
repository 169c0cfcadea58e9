"""The whole state goes to the next hop before it goes on: what moving a snapshot between neighbours amounts to."""

from __future__ import annotations

from collections.abc import Callable

from meander.reconfigure.state.hops import Forwarding
from meander.reconfigure.state.in_process import Migration, monotonic_ms
from meander.reconfigure.state.job import Job
from meander.reconfigure.state.strategy import StateStrategy


def begin(job: Job, *, clock_ms: Callable[[], float] = monotonic_ms, background: bool = True) -> Migration:
    return Migration(job, Forwarding.WHOLE, clock_ms=clock_ms, background=background)


STORE_AND_FORWARD = StateStrategy("store_and_forward", "send the whole state from node to node", begin)
