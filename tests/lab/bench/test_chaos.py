"""What `meander bench chaos` reports when a bed does not last."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lab.bench import chaos
from lab.testbed import drills
from lab.testbed.process_test_bed import ProcessTestBedError


def test_a_bed_that_does_not_last_is_a_target_that_does_not_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    def fall(work: Path, *given: Any, **options: Any) -> None:
        raise ProcessTestBedError("home ended by itself")

    monkeypatch.setattr(chaos, "run_schedules", fall)
    monkeypatch.setattr(drills, "run", lambda *given, **options: [])
    said: list[str] = []
    report = chaos.run(quick=True, progress=said.append)
    assert said[0] == "seeds 1 to 20: home ended by itself"
    assert not report.holds
    assert [t["name"] for t in report.as_json()["targets"] if not t["holds"]] == ["beds that did not last"]
