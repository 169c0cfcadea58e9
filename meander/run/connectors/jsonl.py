"""`jsonl`: results as lines of JSON, exactly once: a crash cuts the file back to the acknowledged rows.

With `roll`, a file that is large enough is followed by another one, and with `keep` the oldest are removed, so that
results do not fill the disk.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pyarrow as pa

from meander.run.connectors.base import SinkBinding, SinkKind, SourcePosition, Surroundings
from meander.run.connectors.cut_file import CutFile
from meander.run.connectors.json_rows import json_lines
from meander.run.connectors.options import ConnectorOption, ConnectorOptions
from meander.run.connectors.reachable import SHARED, if_shared

_NUMBER = re.compile(r"\.(\d{6,})$")


class JsonLinesSink:
    """Implements `SinkConnector`."""

    fixed_ranges = False

    def __init__(self, binding: SinkBinding, surroundings: Surroundings) -> None:
        options = ConnectorOptions(binding.target.options, f"sink {binding.target.name!r}")
        self.path = path_of(binding, surroundings, "{query}-{sink}.jsonl")
        self._roll_bytes = options.size("roll")
        self._keep = options.whole("keep", 0, least=2) if "keep" in options.values else None
        if self._keep is not None and self._roll_bytes is None:
            raise options.wrong("keep", "given together with option 'roll': the size at which a file is ended")
        self._durable = surroundings.durable
        self._number = 0
        self._file: CutFile | None = None

    def open(self, binding: SinkBinding, schema: pa.Schema, position: SourcePosition) -> None:
        """Goes on in the file of the position; those that were begun after it are removed."""
        note = position.note or 0
        self._number, length = (0, int(note)) if isinstance(note, int) else (int(note[0]), int(note[1]))
        for number, path in self._numbered():
            if number > self._number:
                path.unlink()
        self._file = CutFile(self._path_of(self._number), length)

    def write(self, table: pa.Table, first: int) -> Any:
        assert self._file is not None
        if self._roll_bytes is not None and self._file.length >= self._roll_bytes:
            following = CutFile(self._path_of(self._number + 1), 0)
            self._file.close()
            self._file, self._number = following, self._number + 1
            self._forget_old()
        length = self._file.append(json_lines(table))
        if self._durable:
            self._file.sync()
        return length if self._number == 0 else [self._number, length]

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def _path_of(self, number: int) -> Path:
        return self.path if number == 0 else self.path.with_name(f"{self.path.stem}.{number:06d}{self.path.suffix}")

    def _numbered(self) -> list[tuple[int, Path]]:
        """The files that followed the first one."""
        found = []
        for path in self.path.parent.glob(f"*{self.path.suffix}"):
            match = _NUMBER.search(path.stem)
            if match is not None and path.stem[: match.start()] == self.path.stem:
                found.append((int(match[1]), path))
        return sorted(found)

    def _forget_old(self) -> None:
        """Removes all but the newest files. One before the present stays in any case: a crash may go back to it."""
        if self._keep is None:
            return
        oldest = self._number - (self._keep - 1)
        for number, path in ((0, self.path), *self._numbered()):
            if number < oldest:
                path.unlink(missing_ok=True)


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
        ConnectorOption(
            "roll", "the size at which another file follows, such as `256MB`: `name.000001.jsonl`", "never"
        ),
        ConnectorOption("keep", "with `roll`: how many files there are at most; the oldest are removed", "all"),
        SHARED,
    ),
    if_shared,
)
