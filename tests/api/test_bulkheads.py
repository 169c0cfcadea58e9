"""A bad query among good ones, in a coordinator that runs: the good ones flow, the bad one says why it is paused."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.api.conftest import Until
from tests.coordinator.world import Browser
from tests.run.user_functions import FLAG

GOOD = {f"good-{i}": f"SELECT id, value * {i + 2} AS v FROM noise WHERE value >= 0 INTO out" for i in range(8)}
RETURNS = "RETURNS (ts timestamp, id bigint, value double) INTO side"
BAD = {
    "a function that returns other columns than it says": (
        f"SELECT * FROM APPLY('tests.run.user_functions:forgets_the_value', noise) {RETURNS}",
        "value",
    ),
    "a function whose module cannot be imported": (
        f"SELECT * FROM APPLY('nowhere.to_be_found:function', noise) {RETURNS}",
        "cannot import 'nowhere.to_be_found'",
    ),
    "a function that raises until it is mended": (
        f"SELECT * FROM APPLY('tests.run.user_functions:fails_while_told', noise) {RETURNS}",
        "not mended yet",
    ),
}


@pytest.fixture
def flag() -> Iterator[None]:
    FLAG.touch()
    yield
    FLAG.unlink(missing_ok=True)


@pytest.mark.usefixtures("flag")
@pytest.mark.parametrize("kind", BAD)
def test_of_nine_queries_one_is_bad_and_eight_flow(operator: Browser, until: Until, kind: str) -> None:
    text, reason = BAD[kind]
    for name, good in GOOD.items():
        assert operator.ask("POST", "/queries", {"text": good, "name": name}).status == 201
    assert operator.ask("POST", "/queries", {"text": text, "name": "bad"}).status == 201
    try:
        until(lambda: operator.get("/queries/bad")["status"] == "paused")
        assert reason in operator.get("/queries/bad")["reason"]
        seen = {name: operator.get(f"/queries/{name}")["results"] for name in GOOD}
        until(lambda: all(operator.get(f"/queries/{name}")["results"] > seen[name] for name in GOOD))
        until(lambda: {operator.get(f"/queries/{name}")["status"] for name in GOOD} == {"running"})
        assert operator.get("/queries/bad")["status"] == "paused"
        assert operator.get("/queries/bad")["results"] == 0
        assert any(reason in problem for problem in operator.get("/health")["problems"])
        if "until it is mended" in kind:
            FLAG.unlink()
            told = operator.ask("POST", "/resume", {"name": "bad"})
            assert [what for each in told.json for what in each["resumed"] if what.startswith("fragment ")]
            until(lambda: operator.get("/queries/bad")["results"] > 0)
            until(lambda: operator.get("/queries/bad")["status"] == "running")
    finally:
        for name in ("bad", *GOOD):
            operator.ask("DELETE", f"/queries/{name}")
    until(lambda: all(operator.ask("GET", f"/queries/{n}").status == 404 for n in ("bad", *GOOD)))
    until(lambda: operator.get("/health")["problems"] == [])
