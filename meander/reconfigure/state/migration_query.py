"""An ad-hoc query streams the state: every hop sends chunks on as they come, so hops work at the same time.

Usually the bulk of it goes while the operator still runs (`precopy`), and what changed since after the marker. Where
all of it goes after the marker, that is a baseline.
"""

from __future__ import annotations

from collections.abc import Callable

from meander.reconfigure.state.hops import Forwarding
from meander.reconfigure.state.in_process import Migration, monotonic_ms
from meander.reconfigure.state.job import Job
from meander.reconfigure.state.strategy import StateStrategy


def begin(job: Job, *, clock_ms: Callable[[], float] = monotonic_ms, background: bool = True) -> Migration:
    return Migration(job, Forwarding.PIPELINED, clock_ms=clock_ms, background=background)


MIGRATION_QUERY = StateStrategy(
    "migration_query", "stream the state hop by hop, the bulk while the operator still runs", begin, sends_ahead=True
)
STOP_AND_COPY = StateStrategy("stop_and_copy", "stop the operator, then stream the whole state hop by hop", begin)
