"""The SQL dialect: scripts of CREATE STREAM, CREATE SINK and queries. `docs/reference/sql.md` describes it.

>>> from meander.model.schema import Schema
>>> train = Stream("train", Schema.of(ts="timestamp", speed="double"), "ts")
>>> (query,) = sql("SELECT speed FROM train WHERE speed < 30 INTO alerts", {"train": train}).queries
>>> len(query.plan.operators)
4
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from meander.lang.demands import read_demands
from meander.lang.reader import Reader
from meander.lang.relation import check_sink, plan
from meander.lang.sql.create import read_options, read_sink, read_stream
from meander.lang.sql.select import SelectReader
from meander.lang.text import Text
from meander.model.demands import Demand
from meander.model.errors import InputError
from meander.model.ids import QueryId
from meander.model.plan import Query, QueryPlan
from meander.model.streams import SinkTarget, Stream


@dataclass(frozen=True)
class Script:
    """The content of a script: its own streams and sinks, and its queries in order."""

    streams: Mapping[str, Stream] = field(default_factory=dict)
    sinks: Mapping[str, SinkTarget] = field(default_factory=dict)
    queries: tuple[Query, ...] = ()


def sql(
    text: str, streams: Mapping[str, Stream] | None = None, sinks: Collection[str] | None = None, name: str = "query"
) -> Script:
    """Reads a script over the known streams. Sinks are checked when they are given or when the script creates some.

    A query without CREATE QUERY is called `name`; several are numbered: `name_1`, `name_2`.
    """
    return _ScriptReader(text, streams or {}, sinks).read(name)


@dataclass(frozen=True)
class _Unnamed:
    name: str | None
    plan: QueryPlan
    demands: tuple[Demand, ...]
    options: dict[str, str]


class _ScriptReader:
    def __init__(self, text: str, streams: Mapping[str, Stream], sinks: Collection[str] | None) -> None:
        self.reader = Reader(Text(text))
        self.known_streams = dict(streams)
        self.known_sinks = None if sinks is None else set(sinks)
        self.streams: dict[str, Stream] = {}
        self.sinks: dict[str, SinkTarget] = {}
        self.queries: list[_Unnamed] = []

    def read(self, name: str) -> Script:
        reader = self.reader
        while reader.token is not None:
            if reader.take(";"):
                continue
            self._statement()
            if reader.token is not None and not reader.at(";"):
                raise reader.expected("the next clause or the end of the statement (;)")
        if not (self.queries or self.streams or self.sinks):
            raise reader.expected("SELECT or CREATE")
        return Script(self.streams, self.sinks, self._named(name))

    def _statement(self) -> None:
        reader = self.reader
        if reader.take("CREATE", "STREAM"):
            self._create_stream()
        elif reader.take("CREATE", "SINK"):
            self._create_sink()
        elif reader.take("CREATE", "QUERY"):
            start, name = reader.offset, reader.name("the query's name")
            if any(q.name == name for q in self.queries):
                raise reader.text.error(f"query {name!r} exists already; give this one another name", start)
            reader.expect("AS")
            self._query(name)
        elif any(reader.at(word) for word in ("SELECT", "WITH", "(")):
            self._query(None)
        else:
            raise reader.expected("SELECT, CREATE STREAM, CREATE SINK or CREATE QUERY")

    def _create_stream(self) -> None:
        start = self.reader.offset
        stream = read_stream(self.reader)
        if stream.name in self.known_streams:
            raise self.reader.text.error(f"stream {stream.name!r} exists already; give this one another name", start)
        self.streams[stream.name] = self.known_streams[stream.name] = stream

    def _create_sink(self) -> None:
        start = self.reader.offset
        sink = read_sink(self.reader)
        if sink.name in self.sinks or sink.name in (self.known_sinks or ()):
            raise self.reader.text.error(f"sink {sink.name!r} exists already; give this one another name", start)
        self.sinks[sink.name] = sink
        self.known_sinks = (self.known_sinks or set()) | {sink.name}

    def _query(self, name: str | None) -> None:
        reader, start = self.reader, self.reader.offset
        relation = SelectReader(reader, self.known_streams).union()
        known = f"; known sinks: {', '.join(sorted(self.known_sinks))}" if self.known_sinks else ""
        if reader.token is None or reader.at(";"):
            raise reader.error(f"the query does not say where its results go; add INTO and a sink{known}")
        reader.expect("INTO", remedy="or another clause")
        sinks = self._sinks()
        demands = read_demands(reader) if reader.take("DEMAND") else ()
        options = read_options(reader) if reader.take("WITH") else {}
        with reader.text.at(start):
            self.queries.append(_Unnamed(name, plan(relation, sinks), demands, options))

    def _sinks(self) -> list[str]:
        found: list[str] = []

        def one() -> None:
            start, name = self.reader.offset, self.reader.name("a sink")
            with self.reader.text.at(start):
                check_sink(name, self.known_sinks)
                if name in found:
                    raise InputError(f"sink {name!r} is named twice")
            found.append(name)

        self.reader.listed(one)
        return found

    def _named(self, base: str) -> tuple[Query, ...]:
        several = sum(q.name is None for q in self.queries) > 1
        result: list[Query] = []
        number = 0
        for query in self.queries:
            number += query.name is None
            name = query.name or (f"{base}_{number}" if several else base)
            if any(q.id == name for q in result):
                raise InputError(f"two queries are called {name!r}; name them with CREATE QUERY name AS SELECT")
            result.append(Query(QueryId(name), query.plan, query.demands, tuple(query.options.items())))
        return tuple(result)
