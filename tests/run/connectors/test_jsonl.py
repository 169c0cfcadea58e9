"""Results in files that follow each other: every row once in any crash, and never more files than wanted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from meander.model.errors import InputError
from meander.model.ids import ChannelId
from meander.model.streams import SinkTarget
from meander.run.connectors import sink_for
from meander.run.connectors.base import SinkBinding, SourcePosition, Surroundings
from meander.run.connectors.jsonl import JsonLinesSink

SCHEMA = pa.schema([("id", pa.int64())])


def sink(directory: Path, position: SourcePosition, **options: str) -> JsonLinesSink:
    binding = SinkBinding("q", SinkTarget("out", "cloud", {"connector": "jsonl", **options}), ChannelId(1))
    found = sink_for(binding, Surroundings(directory, directory))
    assert isinstance(found, JsonLinesSink)
    found.open(binding, SCHEMA, position)
    return found


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": list(ids)}, schema=SCHEMA)


def ids(path: Path) -> list[int]:
    return [json.loads(line)["id"] for line in path.read_text().splitlines()]


def test_a_large_file_is_followed_by_another_one_and_the_oldest_goes(tmp_path: Path) -> None:
    found, note = sink(tmp_path, SourcePosition(), roll="10B", keep="3"), None
    for number in range(8):
        note = found.write(rows(number), number)
    assert note == [7, (tmp_path / "q-out.000007.jsonl").stat().st_size]
    assert sorted(p.name for p in tmp_path.iterdir()) == [f"q-out.{n:06d}.jsonl" for n in (5, 6, 7)]
    assert ids(tmp_path / "q-out.000007.jsonl") == [7]


def test_every_row_is_there_once_wherever_the_process_ends(tmp_path: Path) -> None:
    """Each write is tried once in vain: it was done, and its acknowledgement was lost."""
    position: Any = SourcePosition()
    for number in range(0, 30, 3):
        for is_lost in (True, False):
            found = sink(tmp_path, position, roll="40B")
            note = found.write(rows(number, number + 1, number + 2), number)
            found.close()
            if not is_lost:
                position = SourcePosition(number + 3, note)
    written = [tmp_path / "q-out.jsonl", *sorted(tmp_path.glob("q-out.0*.jsonl"))]
    assert len(written) > 3
    assert [i for path in written for i in ids(path)] == list(range(30))


def test_a_position_of_a_sink_that_did_not_roll_goes_on(tmp_path: Path) -> None:
    before = sink(tmp_path, SourcePosition())
    note = before.write(rows(1), 0)
    before.write(rows(2), 1)
    before.close()
    assert isinstance(note, int)
    after = sink(tmp_path, SourcePosition(1, note), roll="5B")
    after.write(rows(2), 1)
    assert (ids(tmp_path / "q-out.jsonl"), ids(tmp_path / "q-out.000001.jsonl")) == ([1], [2])


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"keep": "3"}, "together with option 'roll'"),
        ({"roll": "10B", "keep": "1"}, "from 2 on"),
        ({"roll": "x"}, "size"),
    ],
)
def test_options_that_do_not_go_together_are_refused(tmp_path: Path, options: dict[str, str], reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        sink(tmp_path, SourcePosition(), **options)
