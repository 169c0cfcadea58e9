"""Windows as SQL writes them: `TUMBLING(ts, 10 s)`, `SLIDING(10 s, 5 s)`, `SESSION(30 s)`, `COUNT(100)`."""

from __future__ import annotations

from collections.abc import Callable

from meander.lang.limits import are_checked
from meander.lang.reader import Reader
from meander.lang.relation import Bound
from meander.lang.text import Phrase, word_of
from meander.model.errors import InputError, unknown
from meander.model.windows import Count, PairWindow, Session, Sliding, Tumbling, Window, Within

WINDOWS: dict[str, Callable[[Reader], Window]] = {
    "TUMBLING": lambda r: Tumbling(r.duration_ms()),
    "SLIDING": lambda r: Sliding(r.duration_ms(), _second(r, r.duration_ms)),
    "SESSION": lambda r: Session(r.duration_ms()),
    "COUNT": lambda r: _count(r),
}
MOST_OVERLAPPING = 10_000
_SYNONYMS = {"TUMBLE": "TUMBLING", "HOP": "SLIDING", "HOPPING": "SLIDING"}


def read_window(reader: Reader) -> tuple[Window, Phrase | None]:
    """A window after the word WINDOW, and the event-time column that it names, if any."""
    start = reader.offset
    word = reader.name("a window such as TUMBLING(10 s)").upper()
    kind = _SYNONYMS.get(word, word)
    if kind not in WINDOWS:
        raise unknown("window", word, WINDOWS).at(reader.text.where(start))
    reader.expect("(")
    column = _leading_column(reader)
    with reader.text.at(start):
        window = WINDOWS[kind](reader)
        _check_overlap(window)
    reader.expect(")")
    return window, column


def _check_overlap(window: Window) -> None:
    """Raises for windows of which a tuple would be in very many: each of them is a row of state."""
    match window:
        case Sliding(size, slide) | Count(size, slide) if size > slide * MOST_OVERLAPPING and are_checked():
            raise InputError(
                f"each tuple would be in {size // slide:,} windows; at most {MOST_OVERLAPPING:,} overlap, so let it "
                "slide further or be smaller"
            )


def read_bound(reader: Reader, what: str) -> Bound:
    """`WITHIN 10 s` or `WINDOW TUMBLING(10 s)` after a join or a pattern, then perhaps ALLOW LATENESS."""
    if reader.take("WITHIN"):
        window: PairWindow = Within(reader.duration_ms())
    elif reader.take("WINDOW"):
        start = reader.offset
        read, column = read_window(reader)
        if column is not None:
            raise column.error(f"the window of {what} names no column, because both sides have one; leave it out")
        if not isinstance(read, Tumbling | Sliding):
            raise reader.text.error(f"{what} takes TUMBLING or SLIDING windows, not {read}", start)
        window = read
    else:
        raise reader.expected(f"WITHIN 10 s or WINDOW TUMBLING(10 s), the time bound of {what}")
    return Bound(window, read_lateness(reader))


def read_lateness(reader: Reader) -> int:
    """`ALLOW LATENESS 5 s`, or none."""
    if not reader.take("ALLOW"):
        return 0
    reader.expect("LATENESS")
    return reader.duration_ms()


def _leading_column(reader: Reader) -> Phrase | None:
    token = reader.token
    if token is None or not (token.text[:1].isalpha() or token.text[:1] == "_" or word_of(token) == ""):
        return None
    column = reader.phrase()
    reader.expect(",", remedy="then the window's size")
    return column


def _second(reader: Reader, read: Callable[[], int]) -> int:
    reader.expect(",", remedy="then how often a window starts, such as 5 s")
    return read()


def _count(reader: Reader) -> Count:
    size = reader.count("a number of tuples such as 100")
    return Count(size, reader.count("a number of tuples such as 10") if reader.take(",") else size)
