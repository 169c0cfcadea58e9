"""Files as sources: growing, half-written, malformed, mistyped; and replay at a speed."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meander.model.errors import InputError
from meander.model.streams import Stream
from meander.run.connectors.base import ConnectorError, Polled, SourceConnector
from tests.run.connectors.streams import START_MS, opened, stream

COLUMNS = "ts bigint, id int, name string"


def reading(path: str, columns: str = COLUMNS, *, nodes: int = 1, **options: str) -> Stream:
    return stream("s", columns, nodes=nodes, options={"connector": "files", "path": path, **options})


def polled(source: SourceConnector, most_rows: int = 1000) -> Polled:
    found = source.poll(START_MS, most_rows)
    assert found is not None
    return found


def ids(source: SourceConnector) -> list[int]:
    found = source.poll(START_MS, 1000)
    return found.table.column("id").to_pylist() if found else []


def test_a_csv_file_is_read_as_it_grows(tmp_path: Path) -> None:
    path = tmp_path / "rides.csv"
    path.write_text("id,ts,extra,na")
    source = opened(reading("rides.csv"), tmp_path)
    assert ids(source) == []
    path.write_text("id,ts,extra,name\n1,100,x,ann\n2,200,x,")
    assert ids(source) == [1]
    with path.open("a") as file:
        file.write("bob\n3,300,x,cleo\n4,4")
    assert ids(source) == [2, 3]
    assert ids(source) == []
    with path.open("a") as file:
        file.write('00,x,"dora, the\t4th"\n')
    assert polled(source).table.to_pylist() == [{"ts": 400, "id": 4, "name": "dora, the\t4th"}]


def test_a_line_break_between_quotes_belongs_to_the_value(tmp_path: Path) -> None:
    path = tmp_path / "notes.csv"
    path.write_text('id,ts,name\n1,100,"two\nlines"\n2,200,"half a\n')
    source = opened(reading("notes.csv"), tmp_path)
    assert polled(source).table.to_pylist() == [{"ts": 100, "id": 1, "name": "two\nlines"}]
    assert ids(source) == []
    with path.open("a") as file:
        file.write('row"\n3,300,""\n4,400,\n')
    assert [row["name"] for row in polled(source).table.to_pylist()] == ["half a\nrow", "", None]


def test_a_quote_that_is_never_closed_does_not_hold_the_file_up(tmp_path: Path) -> None:
    lines = "".join(f"{i},{i},x\n" for i in range(2, 150_000))
    (tmp_path / "open.csv").write_text(f'id,ts,name\n1,1,"open\n{lines}')
    source = opened(reading("open.csv"), tmp_path)
    found = polled(source, 1_000_000)
    assert len(found.table) + len(found.malformed) > 0


def test_new_files_of_a_directory_are_read_in_the_order_of_their_names(tmp_path: Path) -> None:
    def write(name: str, *numbers: int) -> None:
        (tmp_path / name).write_text("".join(json.dumps({"ts": n, "id": n}) + "\n" for n in numbers))

    write("b.jsonl", 3, 4)
    write("a.json", 1, 2)
    write("_writing.jsonl", 99)
    write("notes.txt", 98)
    source = opened(reading("."), tmp_path)
    assert ids(source) == [1, 2, 3, 4]
    write("c.ndjson", 5)
    write("_writing.jsonl", 99, 100)
    assert ids(source) == [5]


def test_parquet_waits_until_it_is_complete_and_is_read_by_parts(tmp_path: Path) -> None:
    table = pa.table({"id": pa.array(range(10), pa.int8()), "name": ["x"] * 10, "ts": range(10)})
    pq.write_table(table, tmp_path / "whole.parquet", row_group_size=4)
    data = (tmp_path / "whole.parquet").read_bytes()
    (tmp_path / "whole.parquet").write_bytes(data[:-20])
    given_stream = reading("*.parquet")
    source = opened(given_stream, tmp_path)
    assert ids(source) == []
    (tmp_path / "whole.parquet").write_bytes(data)
    first = polled(source, 6)
    assert first.table.column("id").to_pylist() == [0, 1, 2, 3, 4, 5]
    assert first.more
    again = opened(given_stream, tmp_path, first.offset)
    assert ids(again) == [6, 7, 8, 9]
    assert ids(again) == []


@given(
    text=st.lists(st.integers(0, 999), max_size=30),
    cuts=st.lists(st.tuples(st.integers(0, 300), st.integers(1, 5), st.booleans()), max_size=10),
    kind=st.sampled_from(["csv", "json"]),
)
def test_any_growth_and_any_restart_gives_every_row_once(
    tmp_path_factory: pytest.TempPathFactory, text: list[int], cuts: list[tuple[int, int, bool]], kind: str
) -> None:
    base = tmp_path_factory.mktemp("files")
    path = base / f"rows.{kind}"
    if kind == "csv":
        data = ("ts,id,name\n" + "".join(f"{n},{n},n{n}\n" for n in text)).encode()
    else:
        data = "".join(json.dumps({"ts": n, "id": n, "name": "é"}) + "\n" for n in text).encode()
    given_stream = reading(path.name)
    path.write_bytes(b"")
    source, offset, found = opened(given_stream, base), None, []
    at = 0
    for more, most_rows, restart in [*cuts, (len(data), 1000, False)]:
        at = min(len(data), at + more)
        path.write_bytes(data[:at])
        batch = source.poll(START_MS, most_rows)
        if batch:
            found += batch.table.column("id").to_pylist()
            offset = batch.offset
        if restart:
            source = opened(given_stream, base, offset)
    while batch := source.poll(START_MS, 1000):
        found += batch.table.column("id").to_pylist()
    assert found == text


def test_a_file_without_a_last_newline_ends_when_it_is_not_tailed(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("ts,id,name\n1,1,x\n2,2,y")
    source = opened(reading("a.csv", tail="false"), tmp_path)
    batch = polled(source)
    assert (batch.table.column("id").to_pylist(), batch.ended) == ([1, 2], True)
    assert source.poll(START_MS, 10) is None


def test_malformed_rows_are_told_apart(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(
        b"ts,id,name\n1,1,good\n2,two,x\n,3,x\n4,4\n5,5,bad \xff\n6,99999999999,x\nlater,7,x\n8,8,\n"
    )
    batch = polled(opened(reading("a.csv"), tmp_path))
    assert batch.table.to_pylist() == [{"ts": 1, "id": 1, "name": "good"}, {"ts": 8, "id": 8, "name": None}]
    assert {m.reason for m in batch.malformed} == {
        "2 values instead of 3",
        "not text in UTF-8",
        "column 'id' is no int",
        "column 'ts' is no bigint",
        "column 'ts' has no event time that a clock shows",
    }
    assert len(batch.malformed) == 6
    assert '{"ts": "2", "id": "two", "name": "x"}' in {m.row for m in batch.malformed}


def test_malformed_json_is_told_apart(tmp_path: Path) -> None:
    rows = [
        '{"ts": 1, "id": 1}',
        "{",
        "[1]",
        '{"ts": 2, "id": "2"}',
        '{"ts": 3, "id": true}',
        '{"id": 4}',
        '{"ts": 5e30}',
    ]
    (tmp_path / "a.json").write_text("\n".join(rows) + "\n\n")
    batch = polled(opened(reading("a.json"), tmp_path))
    assert batch.table.to_pylist() == [{"ts": 1, "id": 1, "name": None}]
    assert [m.row for m in batch.malformed] == [*rows[1:3], *(json.dumps(json.loads(r)) for r in rows[3:])]


def test_all_types_come_through_text(tmp_path: Path) -> None:
    columns = "ts timestamp, a boolean, b double, c date, d binary, e array<int>, f float"
    when = datetime(2024, 5, 1, 12, 30, tzinfo=UTC)
    expected = {"ts": when, "a": True, "b": 1.5, "c": when.date(), "d": b"hi", "e": [1, 2], "f": 2.0}
    (tmp_path / "a.csv").write_text(
        'ts,a,b,c,d,e,f\n2024-05-01T12:30:00Z,true,1.5,2024-05-01,aGk=,"[1,2]",2\n'
        '2024-05-01 14:30:00+02:00,true,1.5,2024-05-01,aGk=,"[1,2]",2\n'
        '2024-05-01 12:30:00,true,1.5,2024-05-01,aGk=,"[1,2]",2\n1714566600000,true,1.5,2024-05-01,aGk=,"[1,2]",2\n'
    )
    row = {"ts": "2024-05-01T12:30:00Z", "a": True, "b": 1.5, "c": "2024-05-01", "d": "aGk=", "e": [1, 2], "f": 2}
    (tmp_path / "b.json").write_text(json.dumps(row) + "\n" + json.dumps(row | {"ts": 1714566600000}) + "\n")
    batch = polled(opened(reading(".", columns), tmp_path))
    assert batch.malformed == ()
    assert batch.table.to_pylist() == [expected] * 6


def test_rows_belong_to_the_node_they_name_or_to_each_in_turn(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("ts,id,name,who\n1,1,x,s-2\n2,2,x,s-1\n3,3,x,s-2\n4,4,x,s-9\n")
    batch = polled(opened(reading("a.csv", nodes=2, node_column="who"), tmp_path))
    assert batch.table.column("id").to_pylist() == [2, 1, 3]
    assert batch.producers.tolist() == [0, 1, 1]
    assert batch.malformed[0].reason == "no producer 's-9'; known producers: s-2, s-1"
    batch = polled(opened(reading("a.csv", nodes=2), tmp_path))
    assert batch.table.column("id").to_pylist() == [1, 3, 2, 4]
    assert batch.producers.tolist() == [0, 0, 1, 1]


def test_a_file_that_shrank_is_not_guessed_at(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("ts,id,name\n1,1,x\n")
    source = opened(reading("a.csv"), tmp_path)
    assert ids(source) == [1]
    (tmp_path / "a.csv").write_text("ts,id,name\n")
    with pytest.raises(ConnectorError, match=r"a.csv was 17 bytes long and is 11 now; give a new file a new name"):
        source.poll(START_MS, 10)


def test_columns_that_do_not_fit_are_refused_before_the_first_row(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("ts,number\n1,1\n")
    pq.write_table(pa.table({"ts": [1], "id": ["one"], "name": ["x"]}), tmp_path / "b.parquet")
    with pytest.raises(InputError) as caught:
        opened(reading("a.csv"), tmp_path)
    assert str(caught.value) == (
        "stream 's': a.csv has no column 'id' (int); its columns are ts, number. "
        "Rename one, or correct the stream's schema"
    )
    with pytest.raises(InputError) as caught:
        opened(reading("b.parquet"), tmp_path)
    assert str(caught.value) == (
        "stream 's': column 'id' is string in b.parquet, but int in the stream; "
        "correct the stream's schema or convert the data"
    )
    with pytest.raises(InputError, match=r"there is no directory .*nowhere; correct option 'path'"):
        opened(reading("nowhere/*.csv"), tmp_path)
    with pytest.raises(InputError, match="stream 's' needs option 'path', such as path: data"):
        opened(stream("s", COLUMNS, options={"connector": "files"}), tmp_path)


# Replay


def replayed(**options: str) -> Stream:
    return stream("s", COLUMNS, nodes=1, options={"connector": "replay", "path": "a.csv", **options})


def recorded(tmp_path: Path) -> Path:
    (tmp_path / "a.csv").write_text("ts,id,name\n1000,1,x\n1500,2,x\n1200,3,x\n9000,4,x\n")
    return tmp_path


def test_replay_keeps_the_pace_of_the_file(tmp_path: Path) -> None:
    source = opened(replayed(speed="2"), recorded(tmp_path))

    def at(ms: int) -> list[int]:
        batch = source.poll(START_MS + ms, 100)
        return batch.table.column("id").to_pylist() if batch else []

    assert [at(0), at(249), at(250), at(3999), at(4000), at(9999)] == [[1], [], [2, 3], [], [4], []]


def test_replay_goes_on_where_it_was(tmp_path: Path) -> None:
    path = recorded(tmp_path)
    first = opened(replayed(), path).poll(START_MS + 100, 100)
    assert first is not None
    second = opened(replayed(), path, first.offset).poll(START_MS + 20_000, 100)
    assert second is not None
    assert second.table.column("id").to_pylist() == [2, 3, 4]
    assert second.ended
    assert opened(replayed(), path, second.offset).poll(START_MS + 20_000, 100) is None


def test_replay_can_move_event_times_to_now(tmp_path: Path) -> None:
    batch = opened(replayed(event_times="now", speed="10"), recorded(tmp_path)).poll(START_MS + 900, 100)
    assert batch is not None
    assert [t - START_MS for t in batch.table.column("ts").to_pylist()] == [0, 50, 20, 800]


def test_replay_at_full_speed_gives_all_at_once(tmp_path: Path) -> None:
    batch = opened(replayed(speed="max"), recorded(tmp_path)).poll(START_MS, 100)
    assert batch is not None
    assert (len(batch.table), batch.ended) == (4, True)
