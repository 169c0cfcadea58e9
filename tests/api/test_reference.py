"""The references of API and command line say what the code says."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]


def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("reference", ROOT / "scripts" / "reference.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_request_is_answered_to_those_who_may_ask_and_to_nobody_else() -> None:
    found = script().answered_roles()
    users = {
        asked: {"everybody" if r is None else r.value for r in who} for asked, who in found.items() if who is not None
    }
    assert len(users) > 40
    assert {asked for asked, who in users.items() if "everybody" in who} == {("/health", "GET"), ("/login", "POST")}
    admins = {path for (path, _), who in users.items() if who == {"admin"}}
    kept = {"/backup", "/standby/follow", "/audit"}
    assert admins == {"/tokens", "/tokens/{name}", "/site-tokens", "/site-tokens/{site}", *kept}
    rows = ("/streams/{stream}/rows", "POST")
    assert users[rows] == {"device", "operator", "admin"}
    for (path, method), who in users.items():
        if "everybody" in who or (path, method) == rows:
            continue
        assert "device" not in who, path
        readers_too = method == "GET" or path == "/links"
        assert who == {"admin"} or who == ({"reader"} if readers_too else set()) | {"operator", "admin"}, (method, path)


@pytest.mark.parametrize("name", ["http.md", "cli.md", "adaptation.md", "roles.md"])
def test_the_reference_is_up_to_date(name: str) -> None:
    made = script().REFERENCES[name]()
    written = (ROOT / "docs" / "reference" / name).read_text(encoding="utf-8")
    assert written == made, "run .venv/bin/python scripts/reference.py"
