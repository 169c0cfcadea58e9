"""What a sink makes of chunks that come twice, too early, damaged, or never."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from meander.reconfigure.state.sink import StateSink
from meander.reconfigure.state.transfer import Compression, Export, TransferError, is_complete
from meander.run.store.store import Store
from tests.reconfigure.state.states import Append, F, G, appends, filled, held


@settings(max_examples=30)
@given(appends, st.sampled_from(Compression), st.data())
def test_whatever_comes_the_state_is_the_same_in_the_end(
    wanted: list[Append], compression: Compression, data: st.DataObject
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        source, path = filled(Path(directory) / "a", wanted), Path(directory) / "b"
        size = max(300, source.state.size(F).bytes // 6)
        chunks = list(Export(source, F, chunk_bytes=size, compression=compression))
        target, taken = Store.open(path), 0
        sink = StateSink(target, G, "move")
        while taken < len(chunks):
            assert not sink.complete
            assert not is_complete(target, G, "move")
            number = min(len(chunks) - 1, max(0, taken + data.draw(st.sampled_from([0, 0, 0, -1, -2, 1, 3]))))
            match data.draw(st.sampled_from(["send", "send", "send", "flip", "cut", "restart"])):
                case "restart":
                    target.close()
                    target = Store.open(path)
                    sink = StateSink(target, G, "move")
                case "send":
                    if number > taken:
                        assert refused(sink, chunks[number])
                    else:
                        arrival = sink.take(chunks[number])
                        assert (arrival.chunk, arrival.repeated) == (number, number < taken)
                        taken = max(taken, number + 1)
                case "flip":
                    at = data.draw(st.integers(0, len(chunks[number]) - 1))
                    if not refused(sink, damaged(chunks[number], at)):
                        assert number <= taken  # the bit was one of the padding
                        taken = max(taken, number + 1)
                case _:
                    assert refused(sink, chunks[number][: data.draw(st.integers(0, len(chunks[number]) - 1))])
        assert sink.complete
        assert is_complete(target, G, "move")
        assert sink.take(chunks[-1]).repeated
        assert held(target, G) == held(source, F)
        target.close()
        assert is_complete(Store.open(path), G, "move")


def refused(sink: StateSink, chunk: bytes) -> bool:
    """Whether the chunk was refused, without any effect."""
    before = sink.store.commits
    try:
        sink.take(chunk)
    except TransferError:
        assert sink.store.commits == before
        return True
    return False


def damaged(chunk: bytes, at: int) -> bytes:
    return chunk[:at] + bytes([chunk[at] ^ 0x40]) + chunk[at + 1 :]
