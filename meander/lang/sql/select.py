"""SELECT: from its text to a relation. A recursive descent, one method a clause; expressions go to `expressions`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from meander.lang.clauses import check_event_time, condition, restricted
from meander.lang.reader import Reader
from meander.lang.relation import Bound, Relation, applied, bounded_by, called, joined, source, united
from meander.lang.sql.aggregation import Grouping, aggregated
from meander.lang.sql.items import SelectItem, Star, selected
from meander.lang.sql.match import Pattern, finish, read_pattern
from meander.lang.sql.windows import read_bound, read_lateness, read_window
from meander.lang.text import Phrase
from meander.model.errors import InputError, unknown
from meander.model.operators import JoinKind
from meander.model.streams import Stream
from meander.model.windows import Window

MOST_COLUMNS = 1_000
"""Columns of a join at most: parts with names can be joined with themselves, and again."""

_UNSUPPORTED = {
    "ORDER BY": "a stream never ends, so it cannot be ordered; use top_k(column, 3) in a window",
    "LIMIT": "a stream never ends, so it cannot be limited; use top_k(column, 3) in a window",
    "CROSS": "a join needs an equality; write JOIN ... ON, or MATCH a AND b",
}


@dataclass
class _Clauses:
    """The clauses after FROM, in any order."""

    where: Phrase | None = None
    group_by: list[SelectItem] | None = None
    window: Window | None = None
    window_column: Phrase | None = None
    lateness_ms: int = 0
    having: Phrase | None = None


class SelectReader:
    """Reads SELECTs over the known streams."""

    def __init__(self, reader: Reader, streams: Mapping[str, Stream]) -> None:
        self.reader = reader
        self.streams = streams
        self.named: dict[str, Relation] = {}

    def union(self) -> Relation:
        """`[WITH name AS (...), ...] SELECT ... [UNION ALL SELECT ...]`"""
        outer, own = self.named, set[str]()

        def part() -> None:
            """`name AS (SELECT ...)`: a part of the query that may be read several times after it."""
            reader, start = self.reader, self.reader.offset
            name = reader.name("the name of a part of the query")
            if name in own:
                raise reader.text.error(f"two parts of the query are called {name!r}; give one another name", start)
            own.add(name)
            reader.expect("AS", "(", remedy="then a SELECT in parentheses")
            self.named = {**self.named, name: self.union()}
            reader.expect(")")

        if self.reader.take("WITH"):
            self.reader.listed(part)
        result = self._union()
        self.named = outer
        return result

    def _union(self) -> Relation:
        result = self._operand()
        while self.reader.take("UNION"):
            self.reader.expect("ALL", remedy="streams are never deduplicated")
            start, operand = self.reader.offset, self._operand()
            with self.reader.text.at(start):
                result = united([result, operand])
        return result

    def _operand(self) -> Relation:
        if self.reader.take("("):
            inner = self.union()
            self.reader.expect(")")
            return inner
        return self._select()

    def _select(self) -> Relation:
        self.reader.expect("SELECT")
        distinct_at = self.reader.offset
        distinct = self.reader.take("DISTINCT")
        items = self.reader.listed(self.reader.item)
        self.reader.expect("FROM")
        origin = self._origin()
        clauses = self._clauses()
        if distinct:
            self._make_distinct(items, clauses, distinct_at)
        relation = self._restricted(origin, clauses.where)
        grouped = clauses.window is not None
        if not grouped:
            self._check_ungrouped(clauses)
            return selected(relation, items)
        return self._grouped(relation, items, clauses)

    def _grouped(self, relation: Relation, items: list[Star | SelectItem], clauses: _Clauses) -> Relation:
        assert clauses.window is not None
        check_event_time(relation, clauses.window_column)
        grouping = Grouping(clauses.window, clauses.lateness_ms, clauses.group_by or (), clauses.having)
        with self.reader.text.at(items[0].phrase.start):
            return aggregated(relation, items, grouping)

    def _make_distinct(self, items: list[Star | SelectItem], clauses: _Clauses, start: int) -> None:
        """DISTINCT is a GROUP BY of everything: each different row of a window once."""
        if clauses.window is None:
            remedy = "add for example WINDOW TUMBLING(10 s): each different row of a window is given once"
            raise self.reader.text.error(f"a stream never ends, so DISTINCT needs a window; {remedy}", start)
        if clauses.group_by is not None:
            raise self.reader.text.error("DISTINCT and GROUP BY do not go together; leave DISTINCT out", start)
        clauses.group_by = [item for item in items if isinstance(item, SelectItem)]

    def _check_ungrouped(self, clauses: _Clauses) -> None:
        missing = "needs a window; add for example WINDOW TUMBLING(10 s)"
        if clauses.group_by:
            raise clauses.group_by[0].phrase.error(f"GROUP BY {missing}")
        if clauses.having is not None:
            raise clauses.having.error(f"HAVING {missing}")

    def _restricted(self, origin: Relation | Pattern, where: Phrase | None) -> Relation:
        if isinstance(origin, Pattern):
            return finish(origin, where)
        return origin if where is None else restricted(origin, where)

    def _clauses(self) -> _Clauses:
        reader, found = self.reader, _Clauses()
        while True:
            start = reader.offset
            self._refuse("ORDER BY", "LIMIT")
            if reader.take("WHERE"):
                self._once(found.where, "WHERE", start)
                found.where = reader.phrase()
            elif reader.take("GROUP BY"):
                self._once(found.group_by, "GROUP BY", start)
                found.group_by = reader.listed(reader.named_item)
            elif reader.take("WINDOW"):
                self._once(found.window, "WINDOW", start)
                found.window, found.window_column = read_window(reader)
                found.lateness_ms = read_lateness(reader)
            elif reader.take("HAVING"):
                self._once(found.having, "HAVING", start)
                found.having = reader.phrase()
            else:
                return found

    def _once(self, value: object, clause: str, start: int) -> None:
        if value is not None:
            raise self.reader.text.error(f"{clause} is written twice", start)

    def _refuse(self, *words: str) -> None:
        for word in words:
            if self.reader.at(word):
                raise self.reader.error(f"{word} is not supported: {_UNSUPPORTED[word]}")

    def _origin(self) -> Relation | Pattern:
        """The origin after FROM: one source, a chain of joins, or a list of sources with a MATCH."""
        reader, start = self.reader, self.reader.offset
        listed = reader.listed(self._joined)
        if reader.take("MATCH"):
            named: dict[str, Relation] = {}
            for relation in listed:
                alias = relation.scope.only_alias
                if alias is None or alias in named:
                    raise reader.text.error("every input of MATCH needs a name of its own; add AS", start)
                named[alias] = relation
            return read_pattern(reader, named)
        if len(listed) > 1:
            raise reader.expected("MATCH (several inputs need a pattern such as MATCH a THEN b WITHIN 10 s, or JOIN)")
        return listed[0]

    def _joined(self) -> Relation:
        left = self._source()
        while True:
            self._refuse("CROSS")
            kind = self._kind()
            if not self.reader.take("JOIN"):
                if kind is not None:
                    raise self.reader.expected("JOIN")
                return left
            left = self._join(left, kind or JoinKind.INNER)

    def _kind(self) -> JoinKind | None:
        """`INNER`, `LEFT [OUTER]`, `RIGHT [OUTER]`, `FULL [OUTER]`, `LEFT SEMI` or `LEFT ANTI`, before JOIN."""
        reader = self.reader
        if reader.take("INNER"):
            return JoinKind.INNER
        for word, kind in (("LEFT", JoinKind.LEFT), ("RIGHT", JoinKind.RIGHT), ("FULL", JoinKind.FULL)):
            if reader.take(word):
                if word == "LEFT" and reader.take("SEMI"):
                    return JoinKind.SEMI
                if word == "LEFT" and reader.take("ANTI"):
                    return JoinKind.ANTI
                reader.take("OUTER")
                return kind
        return None

    def _join(self, left: Relation, kind: JoinKind) -> Relation:
        reader, start = self.reader, self.reader.offset
        right = self._source()
        reader.expect("ON", remedy="and an equality between both sides")
        phrase = reader.phrase()
        with reader.text.at(start):
            if len(left.schema) + len(right.schema) > MOST_COLUMNS:
                raise InputError(f"this join has more than {MOST_COLUMNS:,} columns; select those that are needed")
            scope = left.scope.beside(right.scope)
        on = condition(scope, phrase)
        with reader.text.at(phrase.start):
            written = reader.at("WITHIN") or reader.at("WINDOW")
            window, rest = (None, on) if written else bounded_by(left, right, on)
            bound = read_bound(reader, "a join") if window is None else Bound(window, read_lateness(reader))
            return joined(left, right, rest, bound, kind)

    def _source(self) -> Relation:
        """A stream, a sub-query or a user function over one; with its alias."""
        reader = self.reader
        if reader.take("("):
            relation = self.union()
            reader.expect(")")
        elif reader.at("APPLY", "("):
            relation = self._apply()
        else:
            relation = self._by_name()
        alias = reader.optional_alias()
        return called(relation, alias) if alias else relation

    def _by_name(self) -> Relation:
        """A part of the query that has a name, or a stream."""
        reader, start = self.reader, self.reader.offset
        name = reader.name("a stream")
        if name in self.named:
            return called(self.named[name], name)
        if name not in self.streams:
            raise unknown("stream", name, {**self.streams, **self.named}).at(reader.text.where(start))
        return source(self.streams[name])

    def _apply(self) -> Relation:
        """`APPLY('module:function', source) RETURNS (column type, ...)`"""
        reader = self.reader
        reader.expect("APPLY", "(")
        start = reader.offset
        function = reader.string("a function written 'module:function'")
        reader.expect(",", remedy="then the input of the function")
        relation = self._source()
        reader.expect(")")
        reader.expect("RETURNS", remedy="and the columns that the function gives, such as (id bigint, speed double)")
        output = reader.schema()
        with reader.text.at(start):
            return applied(relation, function, output)
