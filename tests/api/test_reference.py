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


@pytest.mark.parametrize("name", ["http.md", "cli.md", "adaptation.md"])
def test_the_reference_is_up_to_date(name: str) -> None:
    made = script().REFERENCES[name]()
    written = (ROOT / "docs" / "reference" / name).read_text(encoding="utf-8")
    assert written == made, "run .venv/bin/python scripts/reference.py"
