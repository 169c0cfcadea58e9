"""The reference names every connector and every option, as the code has them."""

from __future__ import annotations

from pathlib import Path

import pytest

from meander.run.connectors import SINKS, SOURCES
from meander.run.connectors.options import SINK_OPTIONS, STREAM_OPTIONS, ConnectorOption

PAGE = (Path(__file__).parents[3] / "docs" / "reference" / "connectors.md").read_text()
OPTIONS: set[tuple[str, ConnectorOption]] = {
    (kind, option)
    for kind, options in [
        ("stream", STREAM_OPTIONS),
        ("sink", SINK_OPTIONS),
        *((f"source {name}", k.options) for name, k in SOURCES.items()),
        *((f"sink {name}", k.options) for name, k in SINKS.items()),
    ]
    for option in options
}


def _order(entry: tuple[str, ConnectorOption]) -> tuple[str, str]:
    return entry[0], entry[1].name


CASES = sorted(OPTIONS, key=_order)


@pytest.mark.parametrize(("kind", "option"), CASES)
def test_option_is_documented(kind: str, option: ConnectorOption) -> None:
    rows = [line for line in PAGE.splitlines() if line.startswith((f"| `{option.name}` |", f"| `{option.name}<"))]
    assert any(f"| {option.meaning} | {option.default or '-'} |" in row for row in rows)


@pytest.mark.parametrize("name", sorted({*SOURCES, *SINKS}))
def test_connector_is_documented(name: str) -> None:
    assert f"`{name}`" in PAGE
