"""Query sets in NebulaStream's builder syntax, one query a line, as ISQP's evaluation uses them.

    Query::from("example142-1").filter(Attribute("p")>=Attribute("o")).map(Attribute("m")=1)
        .unionWith(Query::from("example143-1").project(Attribute("m"),...)).sink(NullOutputSinkDescriptor::create(),64);

Plans keep every operator as it is written, also a projection that changes nothing, because the evaluation counts
operators. The sets repeat a few distinct queries thousands of times, so equal lines share one plan.
"""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from meander.model.errors import InputError, unknown
from meander.model.expressions.functions import call
from meander.model.expressions.tree import Column, Expression, Literal, Named
from meander.model.ids import OperatorId, QueryId
from meander.model.operators import Filter, Map, Operator, Sink, Source, Union, output_schema
from meander.model.plan import Query, QueryPlan
from meander.model.schema import BIGINT, Schema
from meander.model.streams import Stream

SCHEMA = Schema.of(**dict.fromkeys(("m", "n", "o", "p", "q", "r", "time1", "time2"), "bigint"))
"""The columns that the query sets read; the files do not declare any."""

EVENT_TIME = "time1"
_TOKEN = re.compile(r"""\s*(?:Attribute\("(?P<column>\w+)"\)|"(?P<name>[^"]+)"|(?P<number>\d+)|(?P<word>[\w:]+)
                        |(?P<sign><=|>=|==|!=|&&|\|\||[-+*/%<>=(),.;]))""", re.VERBOSE)  # fmt: skip
_LEVELS: tuple[dict[str, str], ...] = (
    {"||": "or"},
    {"&&": "and"},
    {"<": "<", "<=": "<=", ">": ">", ">=": ">=", "==": "=", "!=": "!="},
    {"+": "+", "-": "-"},
    {"*": "*", "/": "/", "%": "%"},
)
"""Infix operators, loosest first, and what the model calls them."""


@dataclass(frozen=True, slots=True)
class NesQuery:
    """A query and the number of the node its sink is pinned to."""

    query: Query
    sink_node: int


def load_queries(path: Path) -> list[NesQuery]:
    """All queries of a set (text or gzip), named by the file's line: `q1`, `q2`, ..."""
    try:
        text = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        lines = text.decode("utf-8").splitlines()
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read the query set: {error}", str(path)) from None
    try:
        return list(read_queries(lines))
    except InputError as error:
        raise error.inside(str(path)) from None


def read_queries(lines: Iterable[str]) -> Iterator[NesQuery]:
    """Queries line by line; empty lines are skipped."""
    known: dict[str, tuple[QueryPlan, int]] = {}
    for number, line in enumerate(lines, start=1):
        text = line.strip()
        if not text:
            continue
        if text not in known:
            try:
                known[text] = read_plan(text)
            except InputError as error:
                raise error.inside(f"line {number}") from None
        plan, node = known[text]
        yield NesQuery(Query(QueryId(f"q{number}"), plan), node)


def streams_of(queries: Iterable[NesQuery]) -> dict[str, Stream]:
    """The streams that the queries read, sorted by name."""
    names = {
        operator.stream
        for plan in {id(q.query.plan): q.query.plan for q in queries}.values()
        for operator in plan.operators.values()
        if isinstance(operator, Source)
    }
    return {name: Stream(name, SCHEMA, EVENT_TIME) for name in sorted(names)}


def read_plan(text: str) -> tuple[QueryPlan, int]:
    """The plan of one query, and its sink's node."""
    return _Builder(text).read()


class _Builder:
    """A recursive descent over the calls of one query."""

    def __init__(self, text: str) -> None:
        self.tokens = list(_tokens(text))
        self.index = 0
        self.operators: dict[OperatorId, Operator] = {}
        self.inputs: dict[OperatorId, tuple[OperatorId, ...]] = {}
        self.schemas: dict[OperatorId, Schema] = {}

    def read(self) -> tuple[QueryPlan, int]:
        top = self._chain()
        self._expect("sink", "(", "NullOutputSinkDescriptor::create", "(", ")", ",")
        node = self._take("number")
        self._expect(")")
        if self._peek() == ";":
            self._expect(";")
        if self.index < len(self.tokens):
            raise self._unexpected("the end of the query")
        self._add(Sink(f"sink-{node}", self.schemas[top].names), top)
        return QueryPlan(self.operators, self.inputs).numbered(), int(node)

    def _chain(self) -> OperatorId:
        """`Query::from("stream")` and its calls, up to `sink` or the end of the argument."""
        self._expect("Query::from", "(")
        top = self._add(Source(self._take("name"), SCHEMA, EVENT_TIME))
        self._expect(")")
        while self._peek() == ".":
            self._expect(".")
            word = self._peek()
            if word == "sink":
                return top
            self._expect(word, "(")
            top = self._call(word, top)
            self._expect(")")
        return top

    def _call(self, word: str, top: OperatorId) -> OperatorId:
        match word:
            case "filter":
                return self._add(Filter(self._expression()), top)
            case "map":
                target = self._take("column")
                self._expect("=")
                value = self._expression()
                return self._add(
                    Map(tuple(Named(n, value if n == target else _column(n)) for n in self.schemas[top].names)), top
                )
            case "project":
                names = [self._take("column")]
                while self._peek() == ",":
                    self._expect(",")
                    names.append(self._take("column"))
                return self._add(Map(tuple(Named(n, _column(n)) for n in names)), top)
            case "unionWith":
                return self._add(Union(), top, self._chain())
        raise unknown("operator", word, ["filter", "map", "project", "unionWith", "sink"])

    def _expression(self, level: int = 0) -> Expression:
        if level == len(_LEVELS):
            return self._operand()
        left = self._expression(level + 1)
        while (sign := self._peek()) in _LEVELS[level]:
            self.index += 1
            left = call(_LEVELS[level][sign], left, self._expression(level + 1))
        return left

    def _operand(self) -> Expression:
        if self._peek() == "(":
            self._expect("(")
            inner = self._expression()
            self._expect(")")
            return inner
        kind, text = self.tokens[self.index] if self.index < len(self.tokens) else ("", "")
        self.index += 1
        if kind == "column":
            return _column(text)
        if kind == "number":
            return Literal(int(text), BIGINT)
        self.index -= 1
        raise self._unexpected("an attribute or a number")

    def _add(self, operator: Operator, *inputs: OperatorId) -> OperatorId:
        number = OperatorId(len(self.operators) + 1)
        self.operators[number], self.inputs[number] = operator, inputs
        self.schemas[number] = output_schema(operator, tuple(self.schemas[i] for i in inputs))
        return number

    def _peek(self) -> str:
        return self.tokens[self.index][1] if self.index < len(self.tokens) else ""

    def _take(self, kind: str) -> str:
        if self.index >= len(self.tokens) or self.tokens[self.index][0] != kind:
            raise self._unexpected(f"a {kind}")
        self.index += 1
        return self.tokens[self.index - 1][1]

    def _expect(self, *texts: str) -> None:
        for text in texts:
            if self._peek() != text:
                raise self._unexpected(repr(text))
            self.index += 1

    def _unexpected(self, wanted: str) -> InputError:
        found = repr(self._peek()) if self.index < len(self.tokens) else "the end"
        return InputError(f"expected {wanted}, but found {found}")


def _column(name: str) -> Column:
    return Column(name, SCHEMA.type_of(name))


def _tokens(text: str) -> Iterator[tuple[str, str]]:
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise InputError(f"cannot read {text[position : position + 10]!r} at column {position + 1}")
        position = match.end()
        kind = match.lastgroup or ""
        yield kind, match.group(kind)
