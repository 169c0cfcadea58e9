"""Notes: what stores remembered under texts before there were record types. They are read as records of version 0.

The text was a word and the key, with blanks between them. Nothing is written so any more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from meander.run.store.records.record import Change, UnknownRecordError
from meander.run.store.records.table import type_of

_WHOLE: dict[str, str] = {
    "deployment numbers": "numbers",
    "slots": "slot count",
    "peers": "peers",
    "quarantine": "quarantine",
    "world": "streams and sinks",
}
"""Notes of which there was one."""
_BY_NUMBER: dict[str, str] = {
    "far fragment ": "remote fragment",
    "far channel ": "remote channel",
    "fragment ": "fragment",
    "channel ": "channel",
    "made ": "serialised fragment",
    "slot of ": "slot",
    "outlet ": "sink binding",
    "gone ": "gone node",
    "reconfiguration ": "reconfiguration",
    "overlap ": "overlap",
    "share ": "part",
    "decided ": "decided",
    "copy ": "copy",
    "log ": "reader",
    "floor ": "floor",
    "lost ": "lost state",
}
_BY_TEXT: dict[str, str] = {
    "topic ": "topic",
    "offset ": "topic offset",
    "ingest ": "ingest",
    "delivery ": "delivery",
    "transition ": "transition",
}
_NODES = " nodes"


def changes_of(notes: Mapping[str, Any]) -> list[Change]:
    """Notes as changes of records; a note without a value forgot the one before."""
    found: list[Change] = []
    for text, value in notes.items():
        kind, key = _parsed(text, value)
        type_ = type_of(kind)
        if value is None:
            found.append(type_.forgotten(tuple(key) if len(key) > 1 else key[0] if key else None))
        else:
            found.append(type_.from_plain(0, [*key, value]))
    return found


def _parsed(text: str, value: Any) -> tuple[str, list[Any]]:
    """The kind of a note and its key."""
    try:
        if text in _WHOLE:
            return _WHOLE[text], []
        if text.startswith("drained "):
            return "drained", [int(number) for number in text.removeprefix("drained ").split(" ")]
        if text.startswith("ingest ") and text.endswith(_NODES) and isinstance(value, list):
            return "ingest nodes", [text.removeprefix("ingest ").removesuffix(_NODES)]
        for kinds, key_of in _KEYS:
            for word, kind in kinds.items():
                if text.startswith(word):
                    return kind, [key_of(text.removeprefix(word))]
    except ValueError:
        pass
    raise UnknownRecordError(f"the note {text!r} is none of those that are known")


_KEYS: tuple[tuple[dict[str, str], Callable[[str], Any]], ...] = ((_BY_NUMBER, int), (_BY_TEXT, str))
