"""Health is true: what waits, stands still or misses its demands is said by the API, the commands, the metrics and the
live stream, in the same words, and what only has nothing to do is no problem."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from typer.testing import CliRunner

from meander.api.coordinator import Coordinator
from meander.cli.main import app
from tests.api.conftest import Until
from tests.api.test_event_stream import stream
from tests.coordinator.world import Browser

AWAY = [{"event": "node_removed", "node": node} for node in ("e0", "e1")]


def query(browser: Browser, name: str) -> dict[str, Any]:
    found: dict[str, Any] = browser.get(f"/queries/{name}")
    return found


def in_condition(browser: Browser, name: str, status: str) -> Any:
    found = query(browser, name)
    return found if found["status"] == status else None


def typed(coordinator: Coordinator, *words: str) -> tuple[int, str]:
    found = CliRunner().invoke(app, list(words))
    return found.exit_code, found.output


def check_told_everywhere(
    coordinator: Coordinator, browser: Browser, until: Until, name: str, status: str, words: str
) -> None:
    """The same condition with the same reason, wherever somebody looks."""
    home = str(coordinator.home.directory)
    start = f"query {name} is {status}: "
    health = until(lambda: (h := browser.get("/health"))["status"] == "degraded" and h)
    assert [p for p in health["problems"] if p.startswith(start) and words in p], health
    assert health["queries"][status] >= 1
    code, text = typed(coordinator, "status", home)
    assert (code, start in text, words in text) == (1, True, True)
    found = json.loads(typed(coordinator, "status", home, "--json")[1])
    assert {q["id"]: q["status"] for q in found["queries"]}[name] == status
    assert f"{name} is {status}: " in typed(coordinator, "list", "-d", home)[1]
    metrics = browser.ask("GET", "/metrics").body.decode()
    assert f'meander_query_condition{{condition="{status}",query="{name}"}} 1.0' in metrics
    assert f'meander_query_condition{{condition="running",query="{name}"}} 0.0' in metrics
    assert f'meander_queries{{status="{status}"}}' in metrics
    assert "meander_up 0.0" in metrics


@pytest.fixture
def well(operator: Browser, coordinator: Coordinator, until: Until) -> Iterator[None]:
    """Before and afterwards everything is as it should be."""
    until(lambda: operator.get("/health")["status"] == "ok")
    assert typed(coordinator, "status", str(coordinator.home.directory))[0] == 0
    yield
    until(lambda: operator.get("/health")["status"] == "ok")
    assert "meander_up 1.0" in operator.ask("GET", "/metrics").body.decode()


@pytest.mark.usefixtures("well")
def test_queries_without_a_route_wait_and_the_service_is_not_well(
    operator: Browser, coordinator: Coordinator, until: Until, reader_token: str
) -> None:
    watched = stream(coordinator, reader_token, kinds="health,query")
    next(watched)
    assert operator.ask("POST", "/events", {"events": AWAY}).status == 200
    until(lambda: in_condition(operator, "steady", "waiting"))
    check_told_everywhere(coordinator, operator, until, "steady", "waiting", "")
    told: dict[str, Any] = {}
    for _, kind, value in watched:
        told[kind] = value
        if told.get("health", {}).get("status") == "degraded" and told.get("query", {}).get("status") == "waiting":
            break
    assert told["query"]["reason"]
    assert operator.ask("POST", "/nodes/restore", {"nodes": ["e0", "e1"]}).status == 200
    until(lambda: in_condition(operator, "steady", "running"))
    recovered = next(value for _, kind, value in watched if kind == "health" and value["status"] == "ok")
    assert recovered["problems"] == []


@pytest.mark.usefixtures("well")
def test_a_query_whose_input_nobody_takes_is_stalled(
    operator: Browser, coordinator: Coordinator, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(coordinator.parts.host.stepper, "has_work", lambda slot: False)
        until(lambda: in_condition(operator, "steady", "stalled"))
        check_told_everywhere(coordinator, operator, until, "steady", "stalled", "none was taken")

        def latency_ms() -> float:
            demands = query(operator, "steady")["demands"]
            return next(float(d.get("value", 0)) for d in demands if d["text"].startswith("latency"))

        until(lambda: latency_ms() > 5_000)  # it gives nothing, and is as late as what waits
    until(lambda: in_condition(operator, "steady", "running"))


@pytest.mark.usefixtures("well")
def test_a_query_that_misses_a_demand_is_violating_and_says_by_how_much(
    operator: Browser, coordinator: Coordinator, until: Until
) -> None:
    text = "SELECT id, value FROM noise WHERE value >= 0 INTO side DEMAND latency < 1 ms"
    assert operator.ask("POST", "/queries", {"text": text, "name": "late"}).status == 201
    until(lambda: in_condition(operator, "late", "violating"))
    check_told_everywhere(coordinator, operator, until, "late", "violating", "latency < 1 ms is missed: ")
    assert "times as much" in query(operator, "late")["reason"]
    assert operator.ask("DELETE", "/queries/late").status == 202
    until(lambda: operator.ask("GET", "/queries/late").status == 404)


@pytest.mark.usefixtures("well")
def test_a_query_whose_sources_give_nothing_is_idle_and_nothing_is_wrong(
    operator: Browser, coordinator: Coordinator, until: Until
) -> None:
    text = "SELECT id FROM reading WHERE value < 0 INTO side DEMAND latency < 30 s"  # drops all, until the file ends
    assert operator.ask("POST", "/queries", {"text": text, "name": "quiet"}).status == 201
    found = until(lambda: in_condition(operator, "quiet", "idle"))
    assert "its sources have given nothing" in found["reason"]
    assert found["demands"][0]["met"] is not False
    until(lambda: operator.get("/health")["status"] == "ok")
    assert operator.get("/health")["queries"]["idle"] == 1
    code, shown = typed(coordinator, "status", str(coordinator.home.directory))
    assert (code, "query quiet is idle: its sources have given nothing" in shown) == (0, True)
    assert operator.ask("DELETE", "/queries/quiet").status == 202
    until(lambda: operator.ask("GET", "/queries/quiet").status == 404)


def test_what_a_site_says_of_itself_is_a_problem_of_the_service(
    operator: Browser, coordinator: Coordinator, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    until(lambda: operator.get("/health")["status"] == "ok")
    with monkeypatch.context() as patched:
        patched.setattr(
            coordinator.membership_service.membership.roster, "troubles", lambda: {"west": ("slot 0 ended: boom",)}
        )
        health = operator.get("/health")
        assert (health["status"], health["problems"]) == ("degraded", ["site west: slot 0 ended: boom"])
    assert operator.get("/health")["status"] == "ok"


def test_a_directory_on_which_nothing_runs_is_said_to_be_down(coordinator: Coordinator, tmp_path: Any) -> None:
    made = CliRunner().invoke(app, ["init", "-t", str(coordinator.home.topology), str(tmp_path / "home")])
    assert made.exit_code == 0, made.output
    code, shown = typed(coordinator, "status", str(tmp_path / "home"))
    assert (code, "no coordinator runs on" in shown) == (1, True)
