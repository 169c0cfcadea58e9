"""Arrow from a hostile peer: refused before anything of it is used, whatever bytes it is made of."""

from __future__ import annotations

import random
import struct
from typing import Any

import pyarrow as pa
import pytest

from meander.model.ids import ChannelId
from meander.run.channels.base import Chunk
from meander.run.channels.flight.ranges import ChannelRange, DamagedError, checksum, from_batch, to_batch
from meander.run.channels.flight.untrusted import UntrustedError, read_untrusted

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string()), ("tags", pa.list_(pa.int32()))])
BATCH = pa.record_batch([[1, 2, None], ["a", "bb", ""], [[1], [], [2, 3]]], schema=SCHEMA)


def compressed(codec: str) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, SCHEMA, options=pa.ipc.IpcWriteOptions(compression=codec)) as writer:
        writer.write_batch(BATCH)
    reader = pa.ipc.MessageReader.open_stream(sink.getvalue())
    reader.read_next_message()
    found: bytes = reader.read_next_message().serialize().to_pybytes()
    return found


def test_a_batch_as_it_was_sent_is_read() -> None:
    assert read_untrusted(BATCH.serialize(), SCHEMA, 3).equals(BATCH)
    assert read_untrusted(BATCH.serialize().to_pybytes(), SCHEMA).equals(BATCH)


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
def test_compressed_batches_are_refused_before_they_are_unpacked(codec: str) -> None:
    with pytest.raises(UntrustedError, match="compressed"):
        read_untrusted(compressed(codec), SCHEMA)


@pytest.mark.parametrize(
    ("body", "rows", "reason"),
    [
        (b"", 0, "no record batch"),
        (b"\xff" * 64, 0, "no record batch"),
        (SCHEMA.serialize().to_pybytes(), 0, "a schema came"),
        (BATCH.serialize().to_pybytes(), 4, "4 were announced"),
        (BATCH.serialize().to_pybytes()[:-8], 3, "no record batch"),
    ],
)
def test_bytes_that_are_no_such_batch_are_refused(body: bytes, rows: int, reason: str) -> None:
    with pytest.raises(UntrustedError, match=reason):
        read_untrusted(body, SCHEMA, rows)


def test_a_batch_that_points_outside_itself_is_refused() -> None:
    schema = pa.schema([("name", pa.string())])
    body = pa.record_batch([["a", "bb", "c"]], schema=schema).serialize().to_pybytes()
    right, wrong = struct.pack("<4i", 0, 1, 3, 4), struct.pack("<4i", 0, 1, 3, 1 << 30)
    assert body.count(right) == 1
    body = body.replace(right, wrong)
    with pytest.raises(UntrustedError, match="points outside itself"):
        read_untrusted(body, schema)


def test_twenty_thousand_damaged_batches_end_in_refusals_or_in_values_that_can_be_read() -> None:
    rng, raw, refused = random.Random(7), BATCH.serialize().to_pybytes(), 0
    for _ in range(20_000):
        body = bytearray(raw)
        for _ in range(rng.randint(1, 4)):
            body[rng.randrange(len(body))] = rng.randrange(256)
        try:
            read_untrusted(bytes(body), SCHEMA, 3).to_pylist()
        except UntrustedError:
            refused += 1
    assert refused > 1_000


def ranged(**wrong: Any) -> ChannelRange:
    found = ChannelRange.of(Chunk(ChannelId(1), 5, 8, pa.Table.from_batches([BATCH]), (), ()))
    fields = {n: wrong.get(n, getattr(found, n)) for n in ("channel", "start", "stop", "control", "body")}
    return ChannelRange(**fields, checksum=checksum(fields["control"], fields["body"]))


@pytest.mark.parametrize(
    "wrong",
    [
        {"stop": 1_000_000},
        {"start": 7},
        {"control": '{"rows": 3, "watermarks": [[2, 0]], "markers": []}', "stop": 9},
        {"control": '{"rows": 3, "watermarks": [[9999, 0]], "markers": []}', "stop": 9},
        {"body": compressed("zstd")},
    ],
    ids=["too few rows", "too many rows", "a watermark before it", "a watermark behind it", "compressed"],
)
def test_a_range_that_does_not_add_up_reaches_no_log(wrong: dict[str, Any]) -> None:
    assert ranged().append(SCHEMA) is not None
    with pytest.raises(UntrustedError):
        ranged(**wrong).append(SCHEMA)


def test_ranges_with_holes_or_other_columns_are_refused() -> None:
    good = to_batch([ranged()])
    assert len(from_batch(good)) == 1
    holes = pa.RecordBatch.from_arrays([pa.nulls(1, field.type) for field in good.schema], schema=good.schema)
    for bad in (holes, good.select(good.schema.names[:-1])):
        with pytest.raises(UntrustedError):
            from_batch(bad)
    with pytest.raises(DamagedError):
        ChannelRange(ChannelId(1), 0, 1, "{}", b"", 1).checked()
