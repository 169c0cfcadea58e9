"""YAML read into plain values that keep their line, so that every later error can name it.

Scalars stay text; the reader of a value knows its type. Long lists with one entry per line, as in `- {name: sensor-1,
kind: sensor}`, are read without the YAML parser, which makes large files load in seconds.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import yaml

from meander.model.errors import InputError

DEEPEST = 20
_LOADER: type = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_PAIR = r"[A-Za-z_]+: -?[A-Za-z0-9_.][A-Za-z0-9_.+/-]*"
_ENTRY = re.compile(rf"( *)- \{{({_PAIR}(?:, {_PAIR})*)\}} *\r?$")
_LIST = re.compile(r"([A-Za-z_]+): *\r?$")
_NOTHING = re.compile(r" *(#.*)?\r?$")
NULLS = frozenset({"", "~", "null", "Null", "NULL"})


@dataclass(slots=True)
class YamlItem:
    """A value with its line. `plain` text had no quotes, so it may also mean a number, a truth value or nothing."""

    value: str | list[YamlItem] | dict[str, YamlItem] | None
    line: int
    plain: bool = True


def is_null(item: YamlItem | str) -> bool:
    """Nothing was written, or a word for nothing."""
    if isinstance(item, str):
        return item in NULLS
    return item.value is None or (item.plain and isinstance(item.value, str) and item.value in NULLS)


@dataclass(frozen=True, slots=True)
class YamlRow:
    """One entry of a list: its line and its values by key. A value that is only a string is plain text on this line."""

    line: int
    values: dict[str, YamlItem | str]


@dataclass(frozen=True, slots=True)
class Document:
    """The top-level mapping, and the lists in it that had one entry per line."""

    keys: dict[str, YamlItem]
    rows: dict[str, list[YamlRow]]


def parse(text: str) -> Document:
    """Reads a document whose top level is a mapping."""
    rest, rows = one_line_lists(text)
    top = compose(rest)
    if top is None:
        raise InputError("the file is empty; it needs at least nodes")
    if not isinstance(top.value, dict):
        raise InputError("the file must be a mapping with nodes, links, streams and sinks", f"line {top.line}")
    return Document(top.value, rows)


def one_line_lists(text: str) -> tuple[str, dict[str, list[YamlRow]]]:
    """Takes out the top-level lists with one entry per line; the other lines keep their number."""
    lines = text.split("\n")
    found: dict[str, list[YamlRow]] = {}
    at = 0
    while at < len(lines):
        heading = _LIST.match(lines[at])
        at += 1
        if heading is None or heading[1] in found:
            continue
        rows, end = _rows(lines, at)
        if rows:
            found[heading[1]] = rows
            lines[at:end] = [""] * (end - at)
        at = end
    return "\n".join(lines), found


def _rows(lines: list[str], start: int) -> tuple[list[YamlRow], int]:
    """The entries from a line on, and where they end; no entries when one of them needs the YAML parser."""
    rows: list[YamlRow] = []
    indent: str | None = None
    for at in range(start, len(lines)):
        entry = _ENTRY.match(lines[at])
        if entry is None:
            if _NOTHING.match(lines[at]):
                continue
            return (rows, at) if lines[at][0] not in " -" else ([], at)
        if indent is None:
            indent = entry[1]
        elif indent != entry[1]:
            return [], at
        pairs = [pair.split(": ", 1) for pair in entry[2].split(", ")]
        values: dict[str, YamlItem | str] = {key: text for key, text in pairs}  # noqa: C416
        if len(values) < len(pairs):
            raise _doubled([key for key, _ in pairs], f"line {at + 1}")
        rows.append(YamlRow(at + 1, values))
    return rows, len(lines)


def compose(text: str) -> YamlItem | None:
    """The document as values with lines, or None when there is none."""
    try:
        events = iter(yaml.parse(text, Loader=_LOADER))
        return _Composer(events).document()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"line {mark.line + 1}" if mark else None
        reason = ": ".join(part for part in (error.context, error.problem) if part)
        raise InputError(f"this is not YAML: {reason}; check indentation, colons and brackets", where) from None
    except yaml.YAMLError as error:
        raise InputError(f"this is not YAML: {' '.join(str(error).split())}") from None


class _Composer:
    """Turns parser events into items. Aliases share the item of their anchor."""

    def __init__(self, events: Iterator[yaml.Event]) -> None:
        self.events = events
        self.anchors: dict[str, YamlItem] = {}

    def document(self) -> YamlItem | None:
        top = None
        for event in self.events:
            if isinstance(event, yaml.DocumentStartEvent):
                if top is not None:
                    raise self.wrong("a second document begins here; one file holds one topology", event)
                top = self.item(next(self.events), 0)
        return None if top is None or is_null(top) else top

    def item(self, event: yaml.Event, depth: int) -> YamlItem:
        if depth > DEEPEST:
            raise self.wrong(f"values are nested more than {DEEPEST} deep", event)
        if isinstance(event, yaml.AliasEvent):
            if event.anchor not in self.anchors:
                raise self.wrong(f"no anchor &{event.anchor} before this *{event.anchor}", event)
            return self.anchors[event.anchor]
        item = YamlItem(None, _line(event))
        if isinstance(event, yaml.ScalarEvent):
            item.value, item.plain = event.value, event.style in (None, "")
        elif isinstance(event, yaml.SequenceStartEvent):
            item.value = [self.item(e, depth + 1) for e in self.until(yaml.SequenceEndEvent)]
        else:
            item.value = self.mapping(depth)
        anchor = getattr(event, "anchor", None)
        if anchor:
            self.anchors[anchor] = item
        return item

    def mapping(self, depth: int) -> dict[str, YamlItem]:
        values: dict[str, YamlItem] = {}
        for event in self.until(yaml.MappingEndEvent):
            key = self.item(event, depth + 1)
            if not isinstance(key.value, str):
                raise self.wrong("a key must be a word", event)
            if key.value in values:
                raise _doubled([*values, key.value], f"line {key.line}")
            values[key.value] = self.item(next(self.events), depth + 1)
        return values

    def until(self, end: type) -> Iterator[yaml.Event]:
        for event in self.events:
            if isinstance(event, end):
                return
            yield event

    def wrong(self, message: str, event: yaml.Event) -> InputError:
        return InputError(message, f"line {_line(event)}")


def _line(event: yaml.Event) -> int:
    return event.start_mark.line + 1 if event.start_mark else 1


def _doubled(keys: list[str], where: str) -> InputError:
    doubled = next(key for index, key in enumerate(keys) if key in keys[:index])
    return InputError(f"key {doubled!r} appears twice; keep one of them", where)
