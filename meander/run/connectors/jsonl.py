"""`jsonl`: results as lines of JSON in one file, exactly once: a crash cuts the file back to the acknowledged rows."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pyarrow as pa

from meander.run.connectors.base import SinkBinding, SinkKind, SourcePosition, Surroundings
from meander.run.connectors.cut_file import CutFile
from meander.run.connectors.elsewhere import SHARED, if_shared
from meander.run.connectors.json_rows import json_lines
from meander.run.connectors.options import ConnectorOption


class JsonLinesSink:
    """Implements `SinkConnector`."""

    fixed_ranges = False

    def __init__(self, binding: SinkBinding, surroundings: Surroundings) -> None:
        self.path = path_of(binding, surroundings, "{query}-{sink}.jsonl")
        self._durable = surroundings.durable
        self._file: CutFile | None = None

    def open(self, binding: SinkBinding, schema: pa.Schema, position: SourcePosition) -> None:
        self._file = CutFile(self.path, int(position.note or 0))

    def write(self, table: pa.Table, first: int) -> Any:
        assert self._file is not None
        length = self._file.append(json_lines(table))
        if self._durable:
            self._file.sync()
        return length

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


def path_of(binding: SinkBinding, surroundings: Surroundings, default: str) -> Path:
    """The path of a sink binding: `{query}` and `{sink}` in the option stand for their names."""
    text = binding.target.options.get("path", default)
    names = {"{query}": binding.query, "{sink}": binding.target.name}
    for sign, name in names.items():
        text = text.replace(sign, re.sub(r"[^\w.-]+", "_", name))
    return surroundings.base / Path(text).expanduser()


def make(binding: SinkBinding, surroundings: Surroundings) -> JsonLinesSink:
    return JsonLinesSink(binding, surroundings)


KIND = SinkKind(
    make,
    (
        ConnectorOption("path", "the file; `{query}` and `{sink}` stand for their names", "`{query}-{sink}.jsonl`"),
        SHARED,
    ),
    if_shared,
)
