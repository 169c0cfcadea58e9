"""The HTTP API of a coordinator that runs: what it answers, what it refuses, and that nothing has two effects."""

from __future__ import annotations

import json
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from meander.api.coordinator import Coordinator
from meander.api.request_checks import MOST_BYTES
from meander.cli.main import app
from meander.coordinator.adaptation.transitions import PROTOCOLS
from meander.place.amenders.count import by_cores
from tests.api.conftest import Until
from tests.coordinator.world import Browser

CUT = {"event": "link_removed", "source": "s2", "target": "e1"}
MEND = {"event": "link_added", "source": "s2", "target": "e1", "latency_ms": 1}


def query(browser: Browser, name: str) -> dict[str, Any]:
    found: dict[str, Any] = browser.get(f"/queries/{name}")
    return found


def gone(browser: Browser, name: str) -> bool:
    return browser.ask("GET", f"/queries/{name}").status == 404


# ---------------------------------------------------------------- a query's life


def test_a_query_is_submitted_gives_results_and_is_stopped_without_a_trace(
    operator: Browser, coordinator: Coordinator, until: Until
) -> None:
    text = "SELECT id, value * 2 AS twice FROM noise WHERE value < 1000000 INTO side"
    made = operator.ask("POST", "/queries", {"text": text, "name": "short"})
    assert made.status == 201
    assert (made.json["id"], made.json["text"]) == ("short", text)
    until(lambda: query(operator, "short")["results"] > 0)
    found = query(operator, "short")
    assert found["status"] == "running"
    assert {o["kind"] for o in found["dag"]["operators"]} >= {"source", "map", "sink"}
    assert all(o["node"] and o["why"] for o in found["dag"]["operators"])
    numbers = {o["id"] for o in found["dag"]["operators"]}
    assert all(set(edge) <= numbers for edge in found["dag"]["edges"])
    rows = operator.get("/queries/short/results?limit=3")
    assert rows["rows"]
    assert set(rows["rows"][0]) == {"id", "twice"}

    assert operator.ask("DELETE", "/queries/short").status == 202
    until(lambda: gone(operator, "short"))
    store = coordinator.parts.host.store
    left = {o.channel for o in coordinator.parts.core.sink_bindings.known.values()}
    assert {c for c in store.exchange.channels() if store.exchange.spec(c).receiver is None} <= left
    assert not [p for p in operator.get("/placements") if "short" in p["queries"]]


def test_a_query_whose_sink_fails_is_paused_with_the_reason(operator: Browser, until: Until) -> None:
    text = "SELECT id FROM noise WHERE value >= 0 INTO broken"
    assert operator.ask("POST", "/queries", {"text": text, "name": "stuck"}).status == 201
    until(lambda: query(operator, "stuck")["status"] == "paused")
    assert "sink cannot take results" in query(operator, "stuck")["reason"]
    problems = until(lambda: operator.get("/health")["problems"])
    assert [p for p in problems if "stuck > broken" not in p] == []
    assert operator.ask("DELETE", "/queries/stuck").status == 202
    until(lambda: gone(operator, "stuck"))
    until(lambda: operator.get("/health")["problems"] == [])


def test_queries_that_make_no_sense_are_refused_with_a_remedy(operator: Browser) -> None:
    cases = {
        "SELECT id FROM nowhere INTO out": "known streams: noise, reading",
        "SELECT id FROM noise INTO nowhere": "known sinks: broken, out, side",
        "SELECT id FROM noise": "INTO",
        "CREATE SINK x AT cloud; SELECT id FROM noise INTO out": "",
        "SELECT id FROM noise INTO out; SELECT id FROM noise INTO side": "one query at a time",
    }
    for text, remedy in cases.items():
        answer = operator.ask("POST", "/queries", {"text": text, "name": "wrong"})
        assert answer.status == 422, text
        assert remedy in answer.json["detail"], answer.json
    taken = operator.ask("POST", "/queries", {"text": "SELECT id FROM noise INTO side", "name": "steady"})
    assert taken.status == 409
    assert {q["id"] for q in operator.get("/queries")} >= {"steady"}
    assert gone(operator, "wrong")


# ---------------------------------------------------------------- changes


def test_events_change_the_topology_and_are_remembered_with_their_outcome(operator: Browser) -> None:
    before = operator.get("/topology")
    answer = operator.ask("POST", "/events", {"events": [CUT, MEND | {"target": "e0"}]})
    assert answer.status == 200
    after = operator.get("/topology")
    assert after["version"] > before["version"]
    assert {"a": "e0", "b": "s2", "latency_ms": 1.0} in after["links"]
    last = operator.get("/events?limit=2")
    assert [e["event"]["event"] for e in last] == ["link_removed", "link_added"]
    assert {e["outcome"]["batch"] for e in last} == {answer.json["batch"]}
    assert {e["outcome"]["state"] for e in last} == {"applied"}
    assert operator.ask("POST", "/events", {"events": [CUT | {"target": "e0"}, MEND]}).status == 200


def test_a_batch_with_one_bad_event_changes_nothing(operator: Browser) -> None:
    before = operator.get("/topology")
    answer = operator.ask("POST", "/events", {"events": [CUT, {"event": "node_removed", "node": "e9"}]})
    assert answer.status == 422
    assert "event 2 of 2" in answer.json["detail"]
    assert "no node 'e9'" in answer.json["detail"]
    assert operator.get("/topology") == before


def test_a_dry_run_says_what_would_move_and_changes_nothing(operator: Browser) -> None:
    before = operator.get("/topology"), operator.get("/placements")
    answer = operator.ask("POST", "/events?dry_run=true", {"events": [{"event": "node_removed", "node": "s1"}]})
    assert answer.status == 200
    assert answer.json["batch"] is None
    assert any("s1" in m["cause"] for m in answer.json["moves"])
    assert (operator.get("/topology"), operator.get("/placements")) == before


def test_a_node_that_leaves_makes_its_query_wait_until_it_is_back(operator: Browser, until: Until) -> None:
    until(lambda: query(operator, "steady")["status"] == "running")
    assert operator.ask("POST", "/events", {"events": [{"event": "node_removed", "node": "s1"}]}).status == 200
    found = until(lambda: (q := query(operator, "steady"))["status"] == "waiting" and q)
    assert "s1" in found["reason"]
    node = next(n for n in operator.get("/topology")["nodes"] if n["name"] == "s1")
    assert not node["alive"]
    back = [
        {"event": "node_added", "name": "s1", "kind": "sensor", "slots": 2, "mobile": True},
        {"event": "link_added", "source": "s1", "target": "e1", "latency_ms": 1},
    ]
    assert operator.ask("POST", "/events", {"events": back}).status == 200
    until(lambda: query(operator, "steady")["status"] == "running")


def standing(browser: Browser) -> tuple[list[Any], list[Any]]:
    """Nodes and links, without what changes when operators move."""
    found = browser.get("/topology")
    nodes = [{k: v for k, v in n.items() if k != "used"} for n in found["nodes"]]
    return nodes, sorted(found["links"], key=lambda link: (link["a"], link["b"]))


def test_nodes_that_were_killed_are_restored_with_all_their_links_in_any_order(operator: Browser, until: Until) -> None:
    before = standing(operator)
    for node in ("e1", "s1", "cloud"):
        assert operator.ask("POST", "/events", {"events": [{"event": "node_removed", "node": node}]}).status == 200
    gone = {n["name"]: n["comes_back_with"] for n in operator.get("/topology")["nodes"] if not n["alive"]}
    assert {name: len(links) for name, links in gone.items()} == {"e1": 4, "s1": 1, "cloud": 2}
    assert {"a": "cloud", "b": "e1", "latency_ms": 10.0, "bandwidth_mbps": 1000.0} in gone["e1"]
    trial = operator.ask("POST", "/nodes/restore?dry_run=true", {"nodes": ["e1"]})
    assert (trial.status, trial.json["batch"]) == (200, None)
    for nodes in (["cloud"], ["s1", "e1"]):
        assert operator.ask("POST", "/nodes/restore", {"nodes": nodes}).status == 200
    assert standing(operator) == before
    until(lambda: query(operator, "steady")["status"] == "running")


def test_what_cannot_be_restored_is_refused_and_what_is_forgotten_is_gone(operator: Browser, reader: Browser) -> None:
    spare = {"event": "node_added", "name": "spare", "kind": "edge", "slots": 1}
    link = {"event": "link_added", "source": "spare", "target": "e0"}
    assert operator.ask("POST", "/events", {"events": [spare, link]}).status == 200
    assert operator.ask("POST", "/nodes/restore", {"nodes": ["spare"]}).status == 409
    assert operator.ask("POST", "/nodes/restore", {"nodes": ["nobody"]}).status == 404
    assert operator.ask("POST", "/events", {"events": [{"event": "node_removed", "node": "spare"}]}).status == 200
    assert reader.ask("POST", "/nodes/restore", {"nodes": ["spare"]}).status == 403
    assert operator.ask("POST", "/nodes/forget", {"nodes": ["spare"]}).json == {"forgotten": ["spare"]}
    assert "spare" not in {n["name"] for n in operator.get("/topology")["nodes"]}
    again = operator.ask("POST", "/nodes/restore", {"nodes": ["spare"]})
    assert (again.status, "was forgotten" in again.json["detail"]) == (404, True)


def test_an_operator_is_moved_by_hand_if_the_node_can_take_it(operator: Browser, until: Until) -> None:
    free = next(o for o in query(operator, "steady")["dag"]["operators"] if o["kind"] == "union")
    for node, status, reason in (("nowhere", 404, "no node 'nowhere'"), ("s0", 409, "")):
        answer = operator.ask("POST", "/moves", {"operator": free["id"], "node": node})
        if node == "s0" and answer.status == 202:
            continue  # there was room after all
        assert (answer.status, reason in answer.json["detail"]) == (status, True)
    assert operator.ask("POST", "/moves", {"operator": 10**6, "node": "e1"}).status == 404
    assert operator.ask("POST", "/moves", {"operator": free["id"], "node": "e1"}).status == 202
    moved = next(p for p in operator.get("/placements") if p["operator"] == free["id"])
    assert (moved["node"], moved["why"]) == ("e1", "put there by hand")

    def arrived() -> bool:
        running = [f for f in operator.get("/deployment")["fragments"] if free["id"] in f["operators"]]
        return bool(running) and running[0]["node"] == "e1" and running[0]["slot"] is not None

    until(arrived)
    until(lambda: query(operator, "steady")["status"] == "running")
    assert next(o for o in query(operator, "steady")["dag"]["operators"] if o["id"] == free["id"])["pinned"]
    assert operator.ask("DELETE", f"/moves/{10**6}").status == 404
    assert operator.ask("DELETE", f"/moves/{free['id']}").status == 202
    released = next(p for p in operator.get("/placements") if p["operator"] == free["id"])
    assert not released["pinned"]
    assert released["why"].endswith(f" chose it after: operator {free['id']} released")
    again = operator.ask("DELETE", f"/moves/{free['id']}")
    assert (again.status, "was not moved by hand" in again.json["detail"]) == (409, True)
    until(lambda: query(operator, "steady")["status"] == "running")


# ---------------------------------------------------------------- demands and mechanisms


def test_demands_change_and_are_measured(operator: Browser, until: Until) -> None:
    answer = operator.ask("PUT", "/queries/steady/demands", {"demands": ["hops <= 7", "latency < 50 s"]})
    assert answer.status == 200
    assert [d["text"] for d in answer.json["demands"]] == ["hops <= 7", "latency < 50000 ms"]
    found = until(lambda: (d := query(operator, "steady")["demands"][0])["met"] is not None and d)
    assert found["met"] is True
    assert operator.ask("PUT", "/queries/steady/demands", {"demands": ["speed > 3"]}).status == 422
    assert operator.ask("PUT", "/queries/nobody/demands", {"demands": []}).status == 404


def test_a_query_switches_its_mechanism_while_it_runs(operator: Browser, until: Until) -> None:
    until(lambda: query(operator, "steady")["status"] == "running")
    now = query(operator, "steady")["mechanism"]
    target = next(m for m in ("producer_consumer", "top_down") if m != now)
    assert operator.ask("POST", "/queries/steady/switch", {"mechanism": "nothing"}).status == 422
    assert operator.ask("POST", "/queries/steady/switch", {"mechanism": target, "protocol": "no"}).status == 422
    dry = operator.ask("POST", "/queries/steady/switch?dry_run=true", {"mechanism": target, "protocol": "auto"})
    if dry.status == 200:  # not while the coordinator switches the query by itself
        assert dry.json["predicted"]["protocol"] == "auto"
        assert [p["protocol"] for p in dry.json["protocols"]] == list(PROTOCOLS)
        assert len(dry.json["predicted"]["operators"]) == dry.json["transition"]["moves"]
    assert query(operator, "steady")["mechanism"] == now
    command = {
        "mechanism": target,
        "protocol": "auto",
    }  # has to wait while the coordinator switches the query by itself
    answer = until(lambda: (a := operator.ask("POST", "/queries/steady/switch", command)).status != 409 and a)
    assert answer.status == 202, answer.body
    assert answer.json["transition"]["to"] == target
    until(lambda: query(operator, "steady")["mechanism"] == target)
    told = operator.get("/transitions?query=steady")
    assert [d["action"] for d in told][-2:] == ["switch", "arrived"]
    assert told[-2]["trigger"] == "asked for"
    took = told[-1]["took"]
    assert took["predicted"]["protocol"] == "auto"
    assert took["seconds"] >= sum(took["parts_s"].values()) - 0.01, "from the decision to the last effect"
    assert took["bytes"] == sum(took[f"{part}_bytes"] for part in ("state", "overlap", "control", "placement"))


def test_adaptation_settings_change_while_queries_run(operator: Browser) -> None:
    def value(name: str, path: str = "/adaptation") -> Any:
        found = next(s for s in operator.get(path)["settings"] if s["name"] == name)
        return found["value"], found["source"]

    own = "/queries/steady/adaptation"
    assert operator.ask("PATCH", "/adaptation", {"settings": {"stay": "1h", "margin": 0.2}}).status == 200
    assert operator.ask("PATCH", own, {"settings": {"margin": 0.5}}).json["query"] == "steady"
    assert value("margin") == (0.2, "set at run time")
    assert (value("margin", own), value("stay", own)) == ((0.5, "set for this query"), ("60min", "set at run time"))
    refused = operator.ask("PATCH", "/adaptation", {"settings": {"period": "1min", "margin": 7}})
    assert (refused.status, refused.json["detail"][:40]) == (422, "margin must be a number from 0 to less t")
    assert value("period") == ("30s", "default"), "all or nothing"
    assert operator.ask("PATCH", "/queries/nobody/adaptation", {"settings": {"stay": "1s"}}).status == 404
    assert operator.ask("DELETE", f"{own}?name=margin").json["reset"] == ["margin"]
    assert operator.ask("DELETE", "/adaptation").json["reset"] == ["stay", "margin"]
    assert value("margin", own) == (0.1, "default")


def test_a_query_begins_with_the_mechanism_that_is_named_or_fits_its_demands(operator: Browser) -> None:
    text = "SELECT id, value FROM noise WHERE value < {} INTO out DEMAND latency < 50 s"
    named = {"text": text.format(1), "name": "named", "mechanism": "top_down", "adaptation": {"act": False}}
    assert operator.ask("POST", "/queries", named | {"mechanism": "nothing"}).status == 422
    assert operator.ask("POST", "/queries", named | {"adaptation": {"act": 3}}).status == 422
    found = operator.ask("POST", "/queries", named).json
    assert (found["mechanism"], found["chosen"]) == ("top_down", "it was named for it")
    chosen = operator.ask("POST", "/queries", {"text": text.format(2), "name": "chosen"}).json
    assert chosen["mechanism"] != "bottom_up"
    assert "its metadata match the demands best; forecast latency" in chosen["chosen"]
    begun = [d for d in operator.get("/decisions?query=chosen") if d["action"] == "begin"]
    assert [d["reason"] for d in begun] == [chosen["chosen"]]
    for name in ("named", "chosen"):
        assert operator.ask("DELETE", f"/queries/{name}").status == 202


# ---------------------------------------------------------------- the same request twice, and many at once


def test_the_same_request_twice_has_one_effect(operator: Browser) -> None:
    body = {"events": [{"event": "node_added", "name": "x1", "kind": "edge"}]}
    first, second = (operator.ask("POST", "/events", body, headers={"Idempotency-Key": "add x1"}) for _ in range(2))
    assert first.status == 200
    assert (second.status, second.json) == (first.status, first.json)
    assert operator.ask("POST", "/events", body).status == 422, "without the key it is another request"
    other = operator.ask("POST", "/events", {"events": [CUT]}, headers={"Idempotency-Key": "add x1"})
    assert other.status == 409


def test_many_clients_at_once_get_one_outcome_each(operator: Browser) -> None:
    """Twenty clients want the same node: one gets it. Forty others each get their own."""

    def add(name: str) -> int:
        return operator.ask(
            "POST", "/events", {"events": [{"event": "node_added", "name": name, "kind": "edge"}]}
        ).status

    with ThreadPoolExecutor(20) as pool:
        same = list(pool.map(add, ["wanted"] * 20))
        own = list(pool.map(add, [f"own-{n}" for n in range(40)]))
    assert sorted(same) == [200, *[422] * 19]
    assert own == [200] * 40
    names = [n["name"] for n in operator.get("/topology")["nodes"]]
    assert len(names) == len(set(names))
    assert {f"own-{n}" for n in range(40)} | {"wanted"} <= set(names)


# ---------------------------------------------------------------- who may do what, and what is too much


def test_nobody_gets_in_without_a_token_and_readers_change_nothing(
    operator: Browser, reader: Browser, stranger: Browser, coordinator: Coordinator
) -> None:
    assert stranger.ask("GET", "/health").status == 200
    wrong = Browser(coordinator.address, "x" * 32)
    for browser in (stranger, wrong):
        for path in ("/queries", "/topology", "/metrics", "/stream"):
            answer = browser.ask("GET", path)
            assert (answer.status, answer.headers["www-authenticate"]) == (401, "Bearer")
    assert reader.ask("GET", "/queries").status == 200
    before = operator.get("/topology")
    for method, path, body in (
        ("POST", "/events", {"events": [CUT]}),
        ("POST", "/queries", {"text": "SELECT id FROM noise INTO out"}),
        ("DELETE", "/queries/steady", None),
        ("PUT", "/queries/steady/demands", {"demands": []}),
        ("POST", "/queries/steady/switch", {"mechanism": "random"}),
        ("POST", "/moves", {"operator": 1, "node": "e0"}),
        ("PATCH", "/adaptation", {"settings": {"stay": "1h"}}),
        ("DELETE", "/queries/steady/adaptation", None),
    ):
        assert reader.ask(method, path, body).status == 403, path
    assert operator.get("/topology") == before
    assert stat.S_IMODE(coordinator.home.tokens.stat().st_mode) == 0o600


@pytest.mark.parametrize(
    ("method", "path", "raw", "status"),
    [
        ("GET", "/nowhere", None, 404),
        ("GET", "/queries/nobody", None, 404),
        ("DELETE", "/queries/nobody", None, 404),
        ("PATCH", "/queries", b"{}", 405),
        ("POST", "/events", b"", 422),
        ("POST", "/events", b"{", 422),
        ("POST", "/events", b"\xff\xfe", 422),
        ("POST", "/events", b"[]", 422),
        ("POST", "/events", b'{"events": []}', 422),
        ("POST", "/events", b'{"events": [1]}', 422),
        ("POST", "/events", b'{"events": [{"event": "query_added", "query": "a", "file": "/etc/passwd"}]}', 422),
        ("POST", "/events", b'{"events": [{"event": "node_added", "name": "y", "kind": "edge", "slots": 1e999}]}', 422),
        ("POST", "/events", b'{"events": [{"event": "node_added", "name": "\\ud800", "kind": "edge"}]}', 422),
        ("POST", "/events", json.dumps({"events": [{"event": "node_added", "name": "y", "kind": "edge",
                                                    "slots": 10**30}]}).encode(), 422),
        ("POST", "/events", b'{"events": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", 400),
        ("POST", "/events", b'{"events": "' + b"x" * MOST_BYTES + b'"}', 413),
        ("GET", "/events?limit=0", None, 422),
        ("GET", "/events?since=99999999999999999999999", None, 422),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told_as_a_problem_without_a_trace(
    operator: Browser, method: str, path: str, raw: bytes | None, status: int
) -> None:
    answer = operator.ask(method, path, raw=raw)
    assert (answer.status, answer.headers["content-type"]) == (status, "application/problem+json")
    problem = answer.json
    assert set(problem) >= {"type", "title", "status", "detail", "instance"}
    assert problem["status"] == status
    assert "Traceback" not in problem["detail"]
    assert 'File "' not in problem["detail"]


def test_every_answer_has_the_headers_that_keep_a_page_safe(operator: Browser) -> None:
    for answer in (operator.ask("GET", "/health"), operator.ask("GET", "/nowhere"), operator.ask("GET", "/", base="")):
        assert "default-src 'self'" in answer.headers["content-security-policy"]
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert "unsafe" not in answer.headers["content-security-policy"]


def test_metrics_have_the_documented_names(operator: Browser, until: Until) -> None:
    until(lambda: b"meander_tuples_in_total" in operator.ask("GET", "/metrics").body)
    text = operator.ask("GET", "/metrics", base="").body.decode()
    assert "meander_up 1.0" in text
    documented = (Path(__file__).parents[2] / "docs" / "operations.md").read_text()
    names = {line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")}
    assert names
    assert {name for name in names if f"`{name}`" not in documented} == set()


def test_a_stage_that_goes_the_slow_way_was_not_to_be_seen_anywhere(
    operator: Browser, coordinator: Coordinator, until: Until
) -> None:
    use = until(lambda: (operator.get("/health")["stages"] or {}).get("stages"))
    assert set(use) == {"prepared", "operator_at_a_time", "plain", "refused"}
    assert sum(use.values()) > 0
    text = operator.ask("GET", "/metrics").body.decode()
    assert all(f'meander_stages{{mode="{mode}"}}' in text for mode in use)
    assert 'meander_stage_runs_total{mode="prepared"}' in text
    assert "\n  stages: " in CliRunner().invoke(app, ["status", str(coordinator.home.directory)]).output


def test_placing_is_shared_by_as_many_amenders_as_there_are_cores(coordinator: Coordinator) -> None:
    assert coordinator.parts.loop.engine.amenders == by_cores()
