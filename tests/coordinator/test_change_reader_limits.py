"""Texts that are made to keep a reader busy: refused within a moment, with a reason."""

from __future__ import annotations

import pytest

from meander.coordinator.change_reader import ChangeReader
from meander.lang.limits import accepted_before
from meander.model.errors import InputError
from meander.model.streams import SinkTarget
from tests.lang.streams import STREAMS

CONDITION = "SELECT id FROM train WHERE {} INTO alerts"
DOUBLED = ", ".join(f"a{i} AS (SELECT id FROM a{i - 1} UNION ALL SELECT id FROM a{i - 1})" for i in range(1, 40))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (CONDITION.format("+".join(["id"] * 9_000) + " > 1"), "nested too deeply"),
        (CONDITION.format("id" + "::bigint" * 6_000 + " > 1"), "nested too deeply"),
        (CONDITION.format("NOT " * 9_000 + "id > 1"), "nested too deeply"),
        (CONDITION.format("id > " + "9" * 9_000), "does not fit into a bigint"),
        (f"WITH a0 AS (SELECT id FROM train), {DOUBLED} SELECT id FROM a39 INTO alerts", "at most 1,000"),
        (f"SELECT count(*) AS n FROM train WINDOW TUMBLING(ts, {'9' * 9_000} s) INTO alerts", "too large"),
        ("SELECT count(*) AS n FROM train WINDOW SLIDING(ts, 1000 h, 1 ms) INTO alerts", "3,600,000,000 windows"),
        ("SELECT count(*) AS n FROM train WINDOW COUNT(1000000, 1) INTO alerts", "1,000,000 windows"),
        (CONDITION.format("station RLIKE concat('(a+)+', '$')"), "written out"),
        (CONDITION.format("'aaaa' LIKE station"), "written out"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_a_text_that_is_made_to_hurt_is_refused(text: str, reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        ChangeReader(STREAMS, {}).query(text, "hurting")


def test_a_query_that_was_accepted_before_there_was_a_limit_is_read_again() -> None:
    with accepted_before():
        assert ChangeReader(STREAMS, {"alerts": SinkTarget("alerts", "hub")}).query(
            CONDITION.format("station RLIKE concat('(a+)+', '$')"), "former"
        )


def test_reading_a_text_ends_after_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("meander.coordinator.change_reader.READ_S", -1.0)
    with pytest.raises(InputError, match="takes too long"):
        ChangeReader(STREAMS, {}).query(CONDITION.format(" AND ".join(["id > 1"] * 100)), "slow")
