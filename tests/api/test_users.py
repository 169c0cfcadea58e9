"""Users at the coordinator: tokens, roles, links to the page, and strangers who try."""

from __future__ import annotations

import json
import re
from typing import Any

from typer.testing import CliRunner

from meander.api.coordinator import Coordinator
from meander.cli.main import app
from meander.coordinator.security.failed_logins import ANSWERED, WRITTEN
from tests.coordinator.world import Browser


def typed(coordinator: Coordinator, *words: str, code: int = 0) -> str:
    result = CliRunner().invoke(app, ["token", *words, "-d", str(coordinator.home.directory)])
    assert result.exit_code == code, (result.output, result.exception)
    return result.output.strip()


def entries(coordinator: Coordinator, operator: Browser) -> list[dict[str, Any]]:
    assert coordinator.service.auditor is not None
    coordinator.service.auditor.flush()
    found: list[dict[str, Any]] = operator.get("/audit?limit=1000")
    return found


def test_a_token_is_made_listed_used_and_revoked_by_command(coordinator: Coordinator, operator: Browser) -> None:
    anna = Browser(coordinator.address, typed(coordinator, "make", "anna", "--role", "operator"))
    assert anna.ask("GET", "/queries").status == 200
    assert anna.ask("POST", "/resume", {}).status == 200
    assert anna.ask("GET", "/audit").status == 403
    listed = json.loads(typed(coordinator, "list", "--json"))
    assert {"name": "anna", "role": "operator"}.items() <= next(t for t in listed if t["name"] == "anna").items()
    assert "digest" not in listed[0]
    typed(coordinator, "revoke", "anna")
    assert anna.ask("GET", "/queries").status == 401
    did = [(e["who"], e["did"], e["about"]) for e in entries(coordinator, operator)]
    assert ("local", "make token", "anna, operator") in did
    assert ("anna", "POST", "/resume") in did
    assert ("local", "revoke token", "anna") in did


def test_a_printed_link_opens_the_page_once_and_has_no_token(coordinator: Coordinator, stranger: Browser) -> None:
    link = coordinator.page
    assert coordinator.token not in link
    code = link.split("#code=")[1]
    opened = stranger.ask("POST", "/login", {"code": code})
    assert opened.status == 200
    page = Browser(coordinator.address, opened.json["token"])
    assert page.ask("GET", "/topology").status == 200
    assert page.ask("POST", "/tokens", {"name": "mallory", "role": "admin"}).status == 403
    assert stranger.ask("POST", "/login", {"code": code}).status == 404
    assert re.fullmatch(rf"{coordinator.address}/#code=[\w-]{{22}}", typed(coordinator, "link"))


def test_a_reader_gets_a_link_of_a_reader(coordinator: Coordinator, reader: Browser, stranger: Browser) -> None:
    made = reader.ask("POST", "/links")
    opened = stranger.ask("POST", "/login", {"code": made.json["link"].removeprefix("/#code=")}).json
    assert (opened["name"], opened["role"]) == ("looker", "reader")
    assert Browser(coordinator.address, opened["token"]).ask("POST", "/resume", {}).status == 403


def test_a_stranger_who_tries_tokens_waits_fills_no_log_and_keeps_nobody_out(
    coordinator: Coordinator, operator: Browser, reader: Browser
) -> None:
    before = len([e for e in entries(coordinator, operator) if e["who"] == "anonymous"])
    tries = [Browser(coordinator.address, f"guess-{n}").ask("GET", "/queries") for n in range(ANSWERED + 30)]
    assert [t.status for t in tries[:ANSWERED]] == [401] * ANSWERED
    assert {t.status for t in tries[ANSWERED + 2 :]} == {429}
    assert tries[-1].headers["retry-after"] == "60"
    assert len([e for e in entries(coordinator, operator) if e["who"] == "anonymous"]) - before <= WRITTEN
    assert reader.ask("GET", "/queries").status == 200
    stranger = Browser(coordinator.address, None)
    assert stranger.ask("POST", "/login", {"code": "guess"}).status == 429
    assert stranger.ask("POST", "/login", {"code": coordinator.page.split("#code=")[1]}).status == 200


def test_a_user_and_a_site_do_not_have_one_name(coordinator: Coordinator, operator: Browser) -> None:
    assert operator.ask("POST", "/site-tokens", {"site": "west", "nodes": ["x"]}).status == 201
    refused = operator.ask("POST", "/tokens", {"name": "west", "role": "reader"})
    assert (refused.status, "a site is called" in refused.json["detail"]) == (422, True)
    operator.ask("DELETE", "/site-tokens/west")


def test_a_query_cannot_import_what_nobody_allowed(operator: Browser) -> None:
    text = "SELECT * FROM APPLY('os:system', noise) RETURNS (id bigint) INTO out"
    for method, path, body in (
        ("POST", "/queries", {"text": text, "name": "evil"}),
        ("POST", "/events", {"events": [{"event": "query_added", "query": "evil", "sql": text}]}),
        ("POST", "/events?dry_run=true", {"events": [{"event": "query_added", "query": "evil", "sql": text}]}),
    ):
        refused = operator.ask(method, path, body)
        assert refused.status == 422
        assert "'os:system' is not allowed here" in refused.json["detail"]


def test_names_that_mean_something_in_a_path_are_refused(operator: Browser) -> None:
    for name in ("..", ".", "../x", "a/b", "a b", "-x", "a\\b", "a?b", "%2e%2e"):
        refused = operator.ask("POST", "/queries", {"text": "SELECT id FROM noise INTO out", "name": name})
        assert refused.status == 422, name
