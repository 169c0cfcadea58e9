"""A cursor over tokens, with the small words of both languages: names, numbers, durations, lists, expressions."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeVar

from sqlglot.tokenizer_core import Token, TokenType

from meander.lang.sql.items import SelectItem, Star
from meander.lang.text import Phrase, Text, is_name, is_quoted, word_of
from meander.model.errors import InputError
from meander.model.schema import DataType, Field, Schema
from meander.model.units import duration_ms

T = TypeVar("T")
_QUANTITY = re.compile(r"[+-]?\d+(\.\d+)?\s*[A-Za-z]*")
_CLAUSES = {"FROM", "WHERE", "GROUP BY", "WINDOW", "HAVING", "UNION", "INTO", "DEMAND", "ORDER BY", "LIMIT"}
_JOINS = {"JOIN", "INNER", "LEFT", "RIGHT", "FULL", "CROSS", "ON", "WITHIN", "ALLOW", "MATCH", "THEN", "RETURNS", "AS"}
STOPS = frozenset(_CLAUSES | _JOINS)
"""Words that end an expression. A column with such a name is written in backticks."""

RESERVED = STOPS | {"SELECT", "AND", "OR", "NOT", "CASE", "WHEN", "ELSE", "END", "IN", "IS", "BETWEEN", "LIKE", "WITH"}
"""Words that cannot be an alias or a name without backticks."""


class Reader:
    """Reads forward; every error names the expected and the found text."""

    def __init__(self, text: Text) -> None:
        self.text = text
        self.tokens = text.tokens()
        self.index = 0

    @property
    def token(self) -> Token | None:
        return self.tokens[self.index] if self.index < len(self.tokens) else None

    @property
    def offset(self) -> int:
        """The offset of the next token; after the last one, the end of the text."""
        if self.token is not None:
            return self.token.start
        return self.tokens[-1].end + 1 if self.tokens else 0

    def error(self, message: str) -> InputError:
        return self.text.error(message, self.offset)

    def expected(self, what: str) -> InputError:
        found = f"found {self.token.text!r}" if self.token else "the text ends"
        return self.error(f"expected {what}, but {found}")

    def at(self, *words: str) -> bool:
        """Whether these keywords or signs come next."""
        tokens = self.tokens[self.index : self.index + len(words)]
        return len(tokens) == len(words) and all(word_of(t) == w for t, w in zip(tokens, words, strict=True))

    def take(self, *words: str) -> bool:
        """Reads the words if they come next."""
        if self.at(*words):
            self.index += len(words)
            return True
        return False

    def expect(self, *words: str, remedy: str = "") -> None:
        for word in words:
            if not self.take(word):
                raise self.expected(word + (f" ({remedy})" if remedy else ""))

    def end(self) -> None:
        if self.token is not None:
            raise self.expected("nothing more")

    def listed(self, one: Callable[[], T]) -> list[T]:
        """One or more, separated by commas."""
        result = [one()]
        while self.take(","):
            result.append(one())
        return result

    def in_parentheses(self, one: Callable[[], T]) -> list[T]:
        self.expect("(")
        result = self.listed(one)
        self.expect(")")
        return result

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
            if not opened and (word in (",", ";", ")") or (word in STOPS and not (cases and word == "THEN"))):
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
