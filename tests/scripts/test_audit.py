"""The audit of pinned packages: names what is vulnerable, and never fails because nobody answers."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def audit() -> ModuleType:
    spec = importlib.util.spec_from_file_location("audit", ROOT / "scripts" / "audit.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_lock_pins_its_packages(audit: ModuleType) -> None:
    for lock in audit.LOCKS:
        text = (ROOT / lock).read_text()
        assert audit.pinned(text)
        assert text.count("--hash=sha256:") >= len(audit.pinned(text)), lock


def test_a_vulnerable_package_is_named_and_ends_the_audit(
    audit: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    name, version = audit.pinned((ROOT / "requirements.lock").read_text())[3]
    withdrawn = {"id": "CVE-0", "withdrawn": "2026-01-01"}

    def answer(asked: str, _: str) -> Any:
        return {"vulnerabilities": [withdrawn, *([{"id": "CVE-1", **more}] if asked == name else [])]}

    more: dict[str, Any] = {"withdrawn": None, "fixed_in": ["9.9"]}
    assert audit.main([], answer) == 1
    said = capsys.readouterr().out
    assert f"{name}=={version} has CVE-1; fixed in 9.9" in said
    assert "has nothing to do with it" in said
    assert "accepted-vulnerabilities.txt" in said
    more = {}
    assert audit.main([], answer) == 0, "there is nothing to update to"
    assert "CVE-1; not fixed yet" in capsys.readouterr().out


@pytest.mark.parametrize("error", [OSError("no route"), TimeoutError(), ValueError("no JSON")])
def test_where_nobody_answers_it_says_so_after_two_tries_and_goes_on(
    audit: ModuleType, capsys: pytest.CaptureFixture[str], error: Exception
) -> None:
    asked: list[str] = []

    def away(name: str, version: str) -> Any:
        asked.append(name)
        raise error

    assert audit.main([], away) == 0
    assert len(asked) == 2
    assert "could not be asked about" in capsys.readouterr().out


def test_an_index_that_answers_slowly_is_not_waited_for_long(audit: ModuleType) -> None:
    moments = iter([0.0, *[1.0] * 10, *[audit.MOST_S + 1] * 1_000])
    packages = [(f"package-{n}", "1") for n in range(50)]
    found, unasked = audit.vulnerabilities(packages, lambda name, version: {}, lambda: next(moments))
    assert (found, unasked) == ({}, 41)


def test_what_is_accepted_is_no_fault(audit: ModuleType) -> None:
    assert audit.accepted("# a comment\n\nCVE-1  not reachable from here\n") == {"CVE-1"}
    assert audit.accepted((ROOT / "packaging" / "accepted-vulnerabilities.txt").read_text()) == set()
