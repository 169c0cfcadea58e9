"""A cursor over tokens: where it is, which words come next, and what was expected instead."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from sqlglot.tokenizer_core import Token

from meander.lang.limits import check_time
from meander.lang.text import Text, word_of
from meander.model.errors import InputError

T = TypeVar("T")


class TokenCursor:
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
        check_time()
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
