"""Reports: medians, goals, and the JSON that other tools read."""

import pytest

from lab.bench import BENCHES, bench
from lab.bench.report import Figure, Report
from meander.model.errors import InputError


def test_a_target_holds_when_its_median_does_not_exceed_the_goal() -> None:
    assert Figure.of("t", "s", [1, 2, 9], goal=2).holds
    assert not Figure.of("t", "s", [1, 2.1, 9], goal=2).holds
    assert Figure.of("t", "s", [1e9]).holds


def test_a_report_as_json() -> None:
    report = Report("b", "data", 2, (Figure.of("t", "s", [1, 2], goal=1), Figure.of("f", "us", [3.14159])), ("note",))
    found = report.as_json()
    assert found.pop("machine")["cpus"] >= 1
    assert found == {
        "bench": "b",
        "data": "data",
        "repeats": 2,
        "holds": False,
        "targets": [{"name": "t", "measured": 1.5, "lowest": 1, "highest": 2, "unit": "s", "goal": 1, "holds": False}],
        "figures": [{"name": "f", "measured": 3.142, "lowest": 3.142, "highest": 3.142, "unit": "us"}],
        "notes": ["note"],
    }


def test_an_unknown_bench_names_the_known_ones() -> None:
    with pytest.raises(InputError, match="no bench 'topologie'; known benches: topology"):
        bench("topologie")
    assert len({b.name for b in BENCHES}) == len(BENCHES)
