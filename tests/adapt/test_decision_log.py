"""The decision log: what is written reads back, and in words it says what happened and why."""

from __future__ import annotations

from pathlib import Path

import pytest

from meander.adapt.decision_log import append, entry, read, told
from meander.model.errors import InputError
from tests.adapt.fakes import FakeWorld, Play


def test_the_log_reads_back_and_explains(tmp_path: Path) -> None:
    world = FakeWorld(
        {"plain": 200.0, "fast": 50.0}, forecast_ms={"plain": 200.0, "fast": 50.0}, broken={"frugal": "x"}
    )
    world.latency_ms["frugal"] = 1.0
    world.forecast_ms = {**(world.forecast_ms or {}), "frugal": 1.0}
    play = Play.of(world, "latency < 100 ms")
    play.run(8)
    path = tmp_path / "log.jsonl"
    append(path, play.decisions[:1])
    append(path, play.decisions[1:])
    entries = list(read(path))
    assert entries == [entry(d) for d in play.decisions]
    words = [told(found, details=True) for found in entries]
    assert any("demand violated: quarantine frugal; mechanism frugal failed: x" in line for line in words)
    (switch,) = [line for line in words if "switch plain -> fast" in line]
    assert "read latency 200" in switch
    assert "fast is expected to meet" in switch
    assert "forecast latency 50" in switch
    assert any("transition ended: arrived plain -> fast; 3 operators moved" in line for line in words)


@pytest.mark.parametrize("line", ["{", "[1]", '{"at_ms": 1}'])
def test_what_is_no_log_is_refused_with_its_line(tmp_path: Path, line: str) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text(f"\n{line}\n", encoding="utf-8")
    with pytest.raises(InputError, match="line 2: this is no entry of a decision log; it needs at_ms, query"):
        list(read(path))


def test_a_log_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="the log cannot be read: No such file"):
        list(read(tmp_path / "none.jsonl"))
