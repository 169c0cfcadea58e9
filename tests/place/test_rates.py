"""Estimates of memory: what an operator keeps follows from its window, its rates and the size of a tuple."""

from __future__ import annotations

import pytest

from meander.model.events import RateChanged
from meander.model.operators import Filter, Operator, Sequence, WindowAggregate, WindowJoin
from meander.place.free_capacity import MEMORY_STEP
from meander.place.rates import STATELESS_MB, memory_mb
from tests.place.amenders.test_amendment import Diamond

JOIN = "SELECT a.id FROM s a JOIN s b ON a.id = b.id WINDOW TUMBLING({span}) INTO out"


def _of(diamond: Diamond, kind: type[Operator]) -> tuple[float, float]:
    """Memory and input rate of the only operator of a kind."""
    record = diamond.catalog.plan[diamond.operator(kind)]
    return record.memory_mb, record.load_tps


def test_a_stateless_operator_takes_a_small_constant() -> None:
    diamond = Diamond()
    diamond.run(diamond.added())
    assert _of(diamond, Filter)[0] == STATELESS_MB


def test_a_join_keeps_the_tuples_of_its_window() -> None:
    diamond = Diamond()
    diamond.run(diamond.added("q", JOIN.format(span="100 s")))
    plan = diamond.catalog.plan
    join = plan[diamond.operator(WindowJoin)]
    kept = sum(plan[i].rate_tps * plan[i].row_bytes for i in join.inputs) * 100 / 1e6
    assert kept > 0.5
    assert join.memory_mb - STATELESS_MB == pytest.approx(kept, abs=MEMORY_STEP)
    assert join.memory_mb % MEMORY_STEP == 0


def test_memory_follows_the_rate_and_the_ledger_follows_memory() -> None:
    diamond = Diamond()
    diamond.run(diamond.added("q", JOIN.format(span="100 s")))
    before = _of(diamond, WindowJoin)[0]
    diamond.run(RateChanged(1, "s", 400.0))  # checks that the ledger holds what the placement uses
    assert _of(diamond, WindowJoin)[0] - STATELESS_MB == pytest.approx(4 * (before - STATELESS_MB), rel=0.01)


def test_an_aggregate_keeps_rows_and_not_tuples() -> None:
    diamond = Diamond()
    text = "SELECT id, count(*) AS n FROM s GROUP BY id WINDOW TUMBLING(ts, 1000 s) INTO out"
    diamond.run(diamond.added("q", text))
    record = diamond.catalog.plan[diamond.operator(WindowAggregate)]
    assert record.memory_mb - STATELESS_MB == pytest.approx(record.rate_tps * record.row_bytes / 1000, abs=MEMORY_STEP)
    assert record.memory_mb < record.load_tps * 32 * 1000 / 1e6, "less than all that arrives in the window"


def test_a_sequence_keeps_tuples_for_its_time() -> None:
    assert memory_mb(Sequence(10_000), [(100.0, 50), (100.0, 150)], (20.0, 200)) == pytest.approx(
        STATELESS_MB + 0.2, abs=MEMORY_STEP
    )
