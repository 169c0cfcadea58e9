"""Text that a user wrote, with positions: every part of a query remembers where it stands, for errors.

Tokens are sqlglot's, in its Spark dialect. A `Phrase` is a run of tokens that makes one expression.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from sqlglot.dialects.spark import Spark
from sqlglot.errors import TokenError
from sqlglot.tokenizer_core import Token, TokenType

from meander.lang.limits import are_checked
from meander.model.errors import InputError

Tokens = tuple[Token, ...]
_QUOTES = "'\"`"
MOST_TOKENS, DEEPEST = 20_000, 100
_OPENING = frozenset({TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.CASE})
_CLOSING = frozenset({TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.END})


@dataclass(frozen=True, slots=True)
class Text:
    """Query text under the label that errors show: `query`, or the method of the fluent API that got it."""

    source: str
    label: str = "query"
    numbers_lines: bool = True

    def where(self, offset: int) -> str:
        """The place of a character, as errors name it.

        >>> Text("SELECT *\\nFROM trian").where(14)
        'query, line 2, column 6'
        """
        before = self.source[:offset]
        line, column = before.count("\n") + 1, offset - (before.rfind("\n") + 1) + 1
        lines = f", line {line}" if self.numbers_lines or "\n" in self.source else ""
        return f"{self.label}{lines}, column {column}"

    def error(self, message: str, offset: int) -> InputError:
        return InputError(message, self.where(offset))

    @contextmanager
    def at(self, offset: int) -> Iterator[None]:
        """Errors without a place that are raised inside get this one."""
        try:
            yield
        except InputError as error:
            raise error.at(self.where(offset)) from None

    def tokens(self) -> Tokens:
        try:
            found = tuple(Spark().tokenize(self.source))
        except TokenError:
            offset, opened = _unclosed(self.source)
            raise self.error(f"{opened} is opened here, but never closed", offset) from None
        self._check_size(found)
        return found

    def _check_size(self, tokens: Tokens) -> None:
        """Raises for texts that are only there to keep a reader busy."""
        if not are_checked():
            return
        if len(tokens) > MOST_TOKENS:
            raise self.error(f"this has {len(tokens):,} words and signs; at most {MOST_TOKENS:,} are read", 0)
        depth = 0
        for token in tokens:
            depth += (token.token_type in _OPENING) - (token.token_type in _CLOSING)
            if depth > DEEPEST:
                raise self.error(
                    f"brackets are nested too deeply here: more than {DEEPEST} of them; use sub-queries", token.start
                )

    def phrase(self) -> Phrase:
        """All of the text as one expression."""
        return Phrase(self, self.tokens(), 0)


@dataclass(frozen=True, slots=True)
class Phrase:
    """The tokens of one expression. `start` is where it is, or where it was expected when it is empty."""

    text: Text
    tokens: Tokens
    start: int

    @property
    def source(self) -> str:
        return self.text.source[self.tokens[0].start : self.tokens[-1].end + 1] if self.tokens else ""

    @property
    def path(self) -> tuple[str, ...]:
        """The words of a plain name: `("speed",)` or `("a", "speed")`; empty for anything else."""
        words = self.tokens[::2]
        if len(self.tokens) not in (1, 3) or not all(map(is_name, words)):
            return ()
        dots = self.tokens[1::2]
        return tuple(w.text for w in words) if all(d.token_type is TokenType.DOT for d in dots) else ()

    def error(self, message: str, offset: int | None = None) -> InputError:
        return self.text.error(message, self.start if offset is None else offset)


def is_quoted(token: Token) -> bool:
    return token.token_type in (TokenType.IDENTIFIER, TokenType.STRING)


def is_name(token: Token) -> bool:
    """A word or a name in backticks."""
    return token.token_type is TokenType.IDENTIFIER or (not is_quoted(token) and token.text.isidentifier())


def word_of(token: Token) -> str:
    """The keyword that a token may be, in capitals; empty for quoted text."""
    return "" if is_quoted(token) else " ".join(token.text.upper().split())


def _unclosed(source: str) -> tuple[int, str]:
    """The start of the quote or comment that is not closed."""
    i = 0
    while i < len(source):
        start, char = i, source[i]
        if char in _QUOTES:
            i += 1
            while i < len(source) and source[i] != char:
                i += 2 if source[i] == "\\" and char != "`" else 1
            if i >= len(source):
                return start, f"a quote ({char})"
        elif source.startswith("--", i):
            i = source.find("\n", i) if "\n" in source[i:] else len(source)
        elif source.startswith("/*", i):
            i = source.find("*/", i + 2) + 1
            if i == 0:
                return start, "a comment (/*)"
        i += 1
    return max(len(source) - 1, 0), "a quote"
