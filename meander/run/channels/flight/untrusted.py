"""Arrow from the network, checked before it is used: its kind, its size, its compression, and every offset in it.

Arrow trusts the buffers that it reads: an offset beyond the end is a read of somebody else's memory, and a few
compressed bytes can unpack to any number of them. Meander sends batches uncompressed, so others are refused.
"""

from __future__ import annotations

import struct

import pyarrow as pa

from meander.model.errors import InputError

MOST_ROWS = 10_000_000
_HEADER, _COMPRESSION = 2, 3
"""Numbers of fields: of a message its header, of a record batch its compression (Arrow's `Message.fbs`)."""


class UntrustedError(InputError):
    """Bytes that came over the network and are not what they should be; nothing of them was used."""


def read_untrusted(body: bytes | pa.Buffer, schema: pa.Schema, rows: int | None = None) -> pa.RecordBatch:
    """The record batch in these bytes, of this schema and, if given, with so many rows; its buffers are not copied."""
    data = body if isinstance(body, pa.Buffer) else pa.py_buffer(body)
    try:
        message = pa.ipc.read_message(data)
        if message.type != "record batch":
            raise UntrustedError(f"a {message.type} came where a record batch was expected")
        if _is_compressed(message.metadata):
            raise UntrustedError("a compressed record batch came; they are sent as they are")
        batch = pa.ipc.read_record_batch(message, schema)
        return checked(batch, schema, rows)
    except (pa.ArrowException, struct.error, OSError, EOFError) as error:
        raise UntrustedError(f"no record batch came: {_first_line(error)}") from None


def checked(batch: pa.RecordBatch, schema: pa.Schema, rows: int | None = None) -> pa.RecordBatch:
    """The batch itself, if everything that it refers to is in it."""
    if not batch.schema.equals(schema):
        raise UntrustedError(f"a batch with the columns {batch.schema.names} came; expected {schema.names}")
    if batch.num_rows > MOST_ROWS or (rows is not None and batch.num_rows != rows):
        raise UntrustedError(f"a batch of {batch.num_rows:,} rows came where {rows or MOST_ROWS:,} were announced")
    try:
        batch.validate(full=True)
    except (pa.ArrowException, UnicodeDecodeError) as error:
        raise UntrustedError(f"a batch came that points outside itself: {_first_line(error)}") from None
    return batch


def _is_compressed(metadata: pa.Buffer) -> bool:
    """Whether the buffers of a record batch are: whether its flatbuffer has the field for that."""
    data = metadata.to_pybytes()
    header = _field(data, struct.unpack_from("<I", data, 0)[0], _HEADER)
    if header is None:
        raise UntrustedError("a message without a header came")
    return _field(data, header + struct.unpack_from("<I", data, header)[0], _COMPRESSION) is not None


def _field(data: bytes, table: int, number: int) -> int | None:
    """The position of a flatbuffer table's field, or None if it is not there."""
    vtable = table - struct.unpack_from("<i", data, table)[0]
    if vtable < 0:
        raise UntrustedError("a message came whose tables point outside it")
    (size,) = struct.unpack_from("<H", data, vtable)
    at = 4 + 2 * number
    if at + 2 > size:
        return None
    (offset,) = struct.unpack_from("<H", data, vtable + at)
    return table + offset if offset else None


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
