"""The source of a migration query: reads a fragment's state at its old place, chunk by chunk.

The state is that of the moment the source was opened: the fragment has drained by then, or it runs and what it changes
later is sent after that, as the difference. Any chunk can be asked for
again, so a broken connection costs no more than the chunks that were under way.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from meander.model.ids import FragmentId
from meander.reconfigure.state.hops import Hop, slowest_mbps
from meander.reconfigure.state.manifest import Manifest
from meander.reconfigure.state.transfer import CHUNK_BYTES, Compression, Export
from meander.run.store.store import Store

FEWEST_CHUNKS_PER_HOP = 8
"""A chunk must be small beside the state, or the hops work one after the other: at least so many for each hop."""
LEAST_CHUNK_BYTES = 64_000


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """How state is cut and packed; None leaves it to the path."""

    compression: Compression | None = None
    chunk_bytes: int | None = None


def open_source(
    store: Store,
    fragment: FragmentId,
    operators: Collection[int] | None = None,
    hops: Collection[Hop] = (),
    options: SourceOptions | None = None,
    after: Manifest | None = None,
) -> Export:
    """The fragment's state as of now, or what changed since `after`, cut and packed for a path."""
    options = options or SourceOptions()
    compression = options.compression or compression_for(slowest_mbps(hops))
    size = options.chunk_bytes or chunk_bytes_for(store.state.size(fragment).bytes, len(hops))
    return Export(store, fragment, operators=operators, chunk_bytes=size, compression=compression, after=after)


def chunk_bytes_for(state_bytes: int, hops: int) -> int:
    """Chunks that keep all hops busy, but are not so small that their handling costs more than their transport.

    >>> chunk_bytes_for(1_000_000_000, 3), chunk_bytes_for(32_000_000, 17), chunk_bytes_for(1000, 2)
    (1000000, 235294, 64000)
    """
    wanted = state_bytes // (FEWEST_CHUNKS_PER_HOP * max(hops, 1))
    return max(LEAST_CHUNK_BYTES, min(CHUNK_BYTES, wanted))


def compression_for(mbps: float) -> Compression:
    """Compressing pays while the slowest link is slower than the codec saves; see decision 50."""
    return Compression.ZSTD if mbps <= ZSTD_BELOW_MBPS else Compression.NONE


ZSTD_BELOW_MBPS = 500.0
"""Links at most this fast get compressed chunks."""
