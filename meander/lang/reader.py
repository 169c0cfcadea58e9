"""The reader of what both languages have in common: names, numbers, durations, expressions, columns."""

from __future__ import annotations

import re

from sqlglot.tokenizer_core import TokenType

from meander.lang.cursor import TokenCursor
from meander.lang.sql.items import SelectItem, Star
from meander.lang.text import Phrase, is_name, is_quoted, word_of
from meander.model.schema import DataType, Field, Schema
from meander.model.units import duration_ms

_QUANTITY = re.compile(r"[+-]?\d+(\.\d+)?\s*[A-Za-z]*")
_CLAUSES = {"FROM", "WHERE", "GROUP BY", "WINDOW", "HAVING", "UNION", "INTO", "DEMAND", "ORDER BY", "LIMIT"}
_JOINS = {"JOIN", "INNER", "LEFT", "RIGHT", "FULL", "CROSS", "ON", "WITHIN", "ALLOW", "MATCH", "THEN", "RETURNS", "AS"}
STOPS = frozenset(_CLAUSES | _JOINS)
"""Words that end an expression. A column with such a name is written in backticks."""

RESERVED = STOPS | {"SELECT", "AND", "OR", "NOT", "CASE", "WHEN", "ELSE", "END", "IN", "IS", "BETWEEN", "LIKE", "WITH"}
"""Words that cannot be an alias or a name without backticks."""


class Reader(TokenCursor):
    """Reads the words that clauses are made of."""

    def name(self, what: str) -> str:
        """A name: a word that is not reserved, or anything in backticks or quotes."""
        token = self.token
        if token is None or not (is_quoted(token) or (is_name(token) and word_of(token) not in RESERVED)):
            raise self.expected(what)
        self.index += 1
        return token.text

    def optional_alias(self) -> str | None:
        """`AS a`, or just `a`."""
        if self.take("AS"):
            return self.name("a name after AS")
        token = self.token
        if token is not None and is_name(token) and (is_quoted(token) or word_of(token) not in RESERVED):
            return self.name("a name")
        return None

    def string(self, what: str) -> str:
        token = self.token
        if token is None or token.token_type is not TokenType.STRING:
            raise self.expected(what)
        self.index += 1
        return token.text

    def quantity(self, what: str) -> str:
        """A number with its unit, as it is written: `10 s`."""
        match = _QUANTITY.match(self.text.source, self.offset)
        if match is None or self.token is None:
            raise self.expected(what)
        self._skip_to(match.end())
        return match.group()

    def number(self, what: str) -> float:
        token = self.token
        if token is None or token.token_type is not TokenType.NUMBER:
            raise self.expected(what)
        self.index += 1
        return float(token.text)

    def count(self, what: str) -> int:
        offset, value = self.offset, self.number(what)
        if value != int(value):
            raise self.text.error(f"expected {what}, but found {value}", offset)
        return int(value)

    def duration_ms(self) -> int:
        with self.text.at(self.offset):
            return duration_ms(self.quantity("a duration such as 10 s"))

    def phrase(self) -> Phrase:
        """The tokens up to the next clause, comma or closing parenthesis of an outer one."""
        start, offset = self.index, self.offset
        opened: list[int] = []
        cases = 0
        while (token := self.token) is not None:
            word = word_of(token)
            if not opened and (word in (",", ";", ")") or (word in STOPS and not self._inside(word, start, cases))):
                break
            if word in ("(", "["):
                opened.append(token.start)
            elif word in (")", "]") and opened:
                opened.pop()
            cases += (word == "CASE") - (word == "END")
            self.index += 1
        if opened:
            raise self.text.error("a parenthesis is opened here, but never closed", opened[-1])
        return Phrase(self.text, self.tokens[start : self.index], offset)

    def _inside(self, word: str, start: int, cases: int) -> bool:
        """Whether a word that ends expressions belongs to this one: `CASE WHEN a THEN b`, `a IS DISTINCT FROM b`."""
        if word == "THEN":
            return cases > 0
        if word in ("LEFT", "RIGHT"):
            following = self.tokens[self.index + 1 : self.index + 2]
            return [word_of(t) for t in following] == ["("]  # the function, not the join
        before = [word_of(t) for t in self.tokens[max(start, self.index - 3) : self.index]]
        return (
            word == "FROM"
            and before[-1:] == ["DISTINCT"]
            and (before[-2:-1] == ["IS"] or before[-3:-1] == ["IS", "NOT"])
        )

    def item(self) -> Star | SelectItem:
        """An item of a SELECT list."""
        phrase = self.phrase()
        stars = [t for t in phrase.tokens if t.token_type is TokenType.STAR]
        if stars and phrase.tokens[-1] is stars[-1]:
            if len(phrase.tokens) == 1:
                return Star(phrase, None)
            if len(phrase.tokens) == 3 and word_of(phrase.tokens[1]) == "." and is_name(phrase.tokens[0]):
                return Star(phrase, phrase.tokens[0].text)
        return SelectItem(phrase, self.name("a name after AS") if self.take("AS") else None)

    def named_item(self) -> SelectItem:
        """An item that is not a star: a key of GROUP BY."""
        item = self.item()
        if isinstance(item, Star):
            raise item.phrase.error("* cannot be used here; list the columns")
        return item

    def field(self) -> Field:
        """A column and its type: `speed double`."""
        name = self.name("a column name")
        start, depth = self.index, 0
        while self.token is not None and (depth or word_of(self.token) not in (",", ")")):
            depth += (word_of(self.token) in ("(", "<")) - (word_of(self.token) in (")", ">"))
            self.index += 1
        if start == self.index:
            raise self.expected(f"the type of column {name!r}")
        first, last = self.tokens[start], self.tokens[self.index - 1]
        with self.text.at(first.start):
            return Field(name, DataType.parse("".join(self.text.source[first.start : last.end + 1].split())))

    def schema(self) -> Schema:
        with self.text.at(self.offset):
            return Schema(tuple(self.in_parentheses(self.field)))

    def _skip_to(self, end: int) -> None:
        while self.token is not None and self.token.start < end:
            self.index += 1
