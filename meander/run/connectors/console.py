"""`console`: results as lines on the terminal, at least once: a crash may show the last ones again."""

from __future__ import annotations

import json
import sys
from typing import Any

import pyarrow as pa

from meander.run.connectors.base import SinkBinding, SinkKind, SourcePosition, Surroundings
from meander.run.connectors.json_rows import json_rows
from meander.run.connectors.options import ConnectorOption, ConnectorOptions
from meander.run.connectors.reachable import only_here


class Console:
    """Implements `SinkConnector`."""

    fixed_ranges = False

    def __init__(self, binding: SinkBinding, surroundings: Surroundings) -> None:
        options = ConnectorOptions(binding.target.options, f"sink {binding.target.name!r}")
        self._most = options.whole("rows", 20, least=1)
        self._query = binding.query

    def open(self, binding: SinkBinding, schema: pa.Schema, position: SourcePosition) -> None:
        """Goes on behind the position: lines on a terminal cannot be removed."""

    def write(self, table: pa.Table, first: int) -> Any:
        lines = [f"{self._query} {json.dumps(row, ensure_ascii=False)}\n" for row in json_rows(table[: self._most])]
        if len(table) > self._most:
            lines.append(f"{self._query} ... and {len(table) - self._most} more\n")
        sys.stdout.write("".join(lines))
        sys.stdout.flush()
        return None

    def close(self) -> None:
        """The terminal stays open."""


def make(binding: SinkBinding, surroundings: Surroundings) -> Console:
    return Console(binding, surroundings)


KIND = SinkKind(
    make,
    (ConnectorOption("rows", "how many rows of one delivery are shown", "20"),),
    only_here("its terminal is at that machine"),
)
