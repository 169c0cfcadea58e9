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


NESTED = pa.schema(
    [
        ("deep", pa.list_(pa.list_(pa.struct([("x", pa.int64()), ("y", pa.string())])))),
        ("map", pa.map_(pa.string(), pa.binary())),
        ("flag", pa.bool_()),
        ("nothing", pa.null()),
        ("at", pa.timestamp("us", "UTC")),
        ("large", pa.large_binary()),
    ]
)
COUNT = 40
RECORDED = {
    "flat": BATCH,
    "none": BATCH.slice(0, 0),
    "nested": pa.record_batch(
        [
            [[[{"x": n, "y": "é" * (n % 5)}], []] if n % 3 else None for n in range(COUNT)],
            pa.array([[("k", b"v" * (n % 7))] if n % 4 else [] for n in range(COUNT)], NESTED.field("map").type),
            [bool(n % 2) for n in range(COUNT)],
            pa.nulls(COUNT),
            pa.array(list(range(COUNT)), NESTED.field("at").type),
            pa.array([bytes(n) for n in range(COUNT)], pa.large_binary()),
        ],
        schema=NESTED,
    ),
}
SIZES = [0, 1, -1, 7, 64, 2**31 - 1, -(2**31), 2**32 - 1, 2**40, 2**62, 2**63 - 1, -(2**63)]


def mutated(rng: random.Random, raw: bytes) -> bytes:
    """A message with bits turned, sizes replaced, and bytes taken out, put in or copied; mostly in its head."""
    body = bytearray(raw)
    head = 8 + struct.unpack_from("<i", raw, 4)[0]
    for _ in range(rng.choice([1, 1, 1, 2, 4])):
        at = rng.randrange(max(1, min(len(body), head) if rng.random() < 0.7 else len(body)))
        match rng.randrange(6):
            case 0:
                body[at : at + 1] = bytes([rng.randrange(256)])
            case 1 | 2:
                word = at // 8 * 8
                body[word : word + 8] = struct.pack("<q", rng.choice(SIZES))
            case 3:
                body[at : at + 4] = struct.pack("<I", rng.choice(SIZES) & 0xFFFFFFFF)
            case 4:
                del body[at : at + rng.randrange(1, 64)]
            case 5:
                body[at:at] = body[: rng.randrange(1, 32)]
    return bytes(body)


@pytest.mark.parametrize("kind", RECORDED)
def test_thousands_of_damaged_batches_end_in_refusals_or_in_values_that_can_be_used(kind: str) -> None:
    good, rng, refused, before = RECORDED[kind], random.Random(7), 0, pa.total_allocated_bytes()
    raw = good.serialize().to_pybytes()
    assert read_untrusted(raw, good.schema, good.num_rows).equals(good)
    for _ in range(10_000):
        try:
            found = read_untrusted(mutated(rng, raw), good.schema)
        except UntrustedError:
            refused += 1
        else:
            copied = pa.Table.from_batches([found]).take(pa.array(range(found.num_rows), pa.int64()))
            assert copied.num_rows == found.num_rows
    assert 3_000 < refused < 10_000
    assert pa.total_allocated_bytes() - before < 50_000_000


def test_dictionaries_which_nobody_sends_are_refused() -> None:
    batch = pa.record_batch([pa.array(["a", "b", "a"]).dictionary_encode()], names=["word"])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    reader = pa.ipc.MessageReader.open_stream(sink.getvalue())
    for _ in range(3):  # schema, dictionary, record batch
        with pytest.raises(UntrustedError):
            read_untrusted(reader.read_next_message().serialize(), batch.schema)


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
