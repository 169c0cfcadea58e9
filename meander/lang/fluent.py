"""The fluent API: queries as Python. It builds the same relations as SQL, so equal queries give equal plans.

>>> from meander.model.schema import Schema
>>> train = Stream("train", Schema.of(ts="timestamp", id="bigint", speed="double"), "ts")
>>> env = Environment({"train": train})
>>> slow = env.stream("train").where("speed < 30").select("id", "speed * 3.6 AS kmh").into("alerts")
>>> str(slow.demand("latency < 100 ms").query("slow").demands[0])
'latency < 100 ms'
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace

from meander.lang.clauses import check_event_time, condition, restricted
from meander.lang.demands import read_demands
from meander.lang.reader import Reader
from meander.lang.relation import (
    Bound,
    Relation,
    applied,
    both,
    bounded_by,
    called,
    check_sink,
    either,
    followed,
    joined,
    plan,
    source,
    united,
)
from meander.lang.sql.aggregation import Grouping, aggregated
from meander.lang.sql.items import SelectItem, Star, selected
from meander.lang.text import Phrase, Text
from meander.model.demands import Demand
from meander.model.errors import InputError, unknown
from meander.model.expressions.tree import Expression
from meander.model.ids import QueryId
from meander.model.operators import JoinKind
from meander.model.plan import Query, QueryPlan
from meander.model.schema import Schema
from meander.model.streams import Stream
from meander.model.units import duration_ms
from meander.model.windows import Count, PairWindow, Session, Sliding, Tumbling, Window, Within


@dataclass(frozen=True)
class Environment:
    """The streams that queries may read and the sinks they may write; sinks are checked when they are given."""

    streams: Mapping[str, Stream]
    sinks: Collection[str] | None = None

    def stream(self, name: str) -> DataStream:
        if name not in self.streams:
            raise unknown("stream", name, self.streams).at(f"stream({name!r})")
        return DataStream(source(self.streams[name]), self)


@dataclass(frozen=True)
class DataStream:
    """A stream of tuples and everything done to it so far. Every method returns a new one."""

    relation: Relation
    environment: Environment = field(repr=False)

    @property
    def schema(self) -> Schema:
        return self.relation.schema

    def alias(self, name: str) -> DataStream:
        """Names the stream, so that conditions over two streams can say `name.column`."""
        return self._with(called(self.relation, name))

    def where(self, predicate: str) -> DataStream:
        """Keeps the tuples for which the predicate is true."""
        return self._with(restricted(self.relation, _phrase("where", predicate)))

    def select(self, *items: str) -> DataStream:
        """Computes columns: `select("id", "speed * 3.6 AS kmh")`. `*` and `alias.*` work."""
        return self._with(selected(self.relation, _items("select", items)))

    def window(self, window: Window | Windowing, lateness: str | None = None) -> WindowedStream:
        """Cuts the stream into windows; `select` on the result takes aggregates."""
        windowing = window if isinstance(window, Windowing) else Windowing(window)
        if windowing.on is not None:
            check_event_time(self.relation, _phrase("window", windowing.on))
        return WindowedStream(self, Grouping(windowing.window, _lateness("window", lateness)))

    def join(
        self,
        other: DataStream,
        on: str,
        within: str | None = None,
        window: PairWindow | Windowing | None = None,
        lateness: str | None = None,
        how: str = "inner",
    ) -> DataStream:
        """Pairs of tuples with equal keys and a true condition, close in time or in one window.

        `how` is `inner`, `left`, `right`, `full`, `semi` or `anti`. Without `within` and `window`, `on` has to say how
        far apart the event times are: `b.ts BETWEEN a.ts - INTERVAL 5 SECONDS AND a.ts + INTERVAL 1 MINUTE`.
        """
        kinds = {kind.value: kind for kind in JoinKind}
        phrase = _phrase("join", on)
        with phrase.text.at(0):
            if how not in kinds:
                raise unknown("kind of join", how, kinds, "kinds")
            predicate = self._over_both(other, phrase)
            chosen, rest = None, predicate
            if within is None and window is None:
                chosen, rest = bounded_by(self.relation, other.relation, predicate)
            late = _lateness("join", lateness)
            bound = _bound("join", within, window, lateness) if chosen is None else Bound(chosen, late)
            return self._with(joined(self.relation, other.relation, rest, bound, kinds[how]))

    def and_(
        self,
        other: DataStream,
        within: str | None = None,
        window: PairWindow | Windowing | None = None,
        where: str | None = None,
        lateness: str | None = None,
    ) -> DataStream:
        """Both happen, in either order."""
        bound = _bound("and_", within, window, lateness)
        phrase = None if where is None else _phrase("and_", where)
        with _at("and_", phrase):
            predicate = None if phrase is None else self._over_both(other, phrase)
            return self._with(both(self.relation, other.relation, bound, predicate))

    def then(self, other: DataStream, within: str, where: str | None = None, lateness: str | None = None) -> DataStream:
        """This happens, and after it the other within a time."""
        phrase = None if where is None else _phrase("then", where)
        late_ms = _lateness("then", lateness)
        with _at("then", phrase):
            predicate = None if phrase is None else self._over_both(other, phrase)
            return self._with(followed(self.relation, other.relation, duration_ms(within), predicate, late_ms))

    def or_(self, other: DataStream) -> DataStream:
        """One or the other happens; the other's columns are null."""
        with _at("or_", None):
            return self._with(either(self.relation, other.relation))

    def union(self, *others: DataStream) -> DataStream:
        """All tuples of all streams, which have the same column types."""
        with _at("union", None):
            return self._with(united([self.relation, *(o.relation for o in others)]))

    def apply(self, function: str | Callable[..., object], returns: Mapping[str, str]) -> DataStream:
        """A Python function from Arrow batches to Arrow batches, given as `module:function` or itself."""
        name = function if isinstance(function, str) else f"{function.__module__}:{function.__qualname__}"
        with _at("apply", None):
            return self._with(applied(self.relation, name, Schema.of(**returns)))

    def into(self, *sinks: str) -> Output:
        """Ends the query: its results go to these sinks."""
        with _at("into", None):
            for name in sinks:
                check_sink(name, self.environment.sinks)
            return Output(plan(self.relation, sinks))

    def _over_both(self, other: DataStream, phrase: Phrase) -> Expression:
        return condition(self.relation.scope.beside(other.relation.scope), phrase)

    def _with(self, relation: Relation) -> DataStream:
        return replace(self, relation=relation)


@dataclass(frozen=True)
class WindowedStream:
    """A stream cut into windows, waiting for its aggregates."""

    stream: DataStream
    grouping: Grouping

    def group_by(self, *keys: str) -> WindowedStream:
        """One result for each window and key."""
        items = [_not_star(i) for i in _items("group_by", keys)]
        return replace(self, grouping=replace(self.grouping, keys=items))

    def having(self, predicate: str) -> WindowedStream:
        """Keeps the results for which the predicate, over aggregates, is true."""
        return replace(self, grouping=replace(self.grouping, having=_phrase("having", predicate)))

    def select(self, *items: str) -> DataStream:
        """Computes aggregates: `select("road", "avg(speed) AS mean")`; also `window_start` and `window_end`."""
        with _at("select", None):
            relation = aggregated(self.stream.relation, _items("select", items), self.grouping)
        return replace(self.stream, relation=relation)


@dataclass(frozen=True)
class Output:
    """A finished plan with its demands; `query` gives it a name."""

    plan: QueryPlan
    demands: tuple[Demand, ...] = ()
    options: tuple[tuple[str, str], ...] = ()

    def demand(self, *demands: str) -> Output:
        """Asks for qualities: `demand("latency < 100 ms", "hops <= 3 WEIGHT 2 WHEN hour BETWEEN 7 AND 9")`."""
        found = list(self.demands)
        for text in demands:
            reader = Reader(_text("demand", text))
            found += read_demands(reader, found)
            reader.end()
        return replace(self, demands=tuple(found))

    def placed(self, mechanism: str, **limits: float | str) -> Output:
        """Names the mechanism that places it at first: `placed("nova", bandwidth_tps=200)` with limits of its own."""
        options = {**dict(self.options), "mechanism": mechanism, **{name: str(each) for name, each in limits.items()}}
        return replace(self, options=tuple(options.items()))

    def query(self, name: str) -> Query:
        return Query(QueryId(name), self.plan, self.demands, self.options)


@dataclass(frozen=True)
class Windowing:
    """A window and, if it was said, the event-time column it goes by."""

    window: Window
    on: str | None = None


def tumbling(size: str, on: str | None = None) -> Windowing:
    """Back-to-back windows: `tumbling("10 s")`."""
    with _at("tumbling", None):
        return Windowing(Tumbling(duration_ms(size)), on)


def sliding(size: str, slide: str, on: str | None = None) -> Windowing:
    """Windows of one size that start every `slide`."""
    with _at("sliding", None):
        return Windowing(Sliding(duration_ms(size), duration_ms(slide)), on)


def session(gap: str, on: str | None = None) -> Windowing:
    """A window for each burst of tuples, closed by a gap."""
    with _at("session", None):
        return Windowing(Session(duration_ms(gap)), on)


def count(size: int, slide: int | None = None) -> Windowing:
    """A window for every `size` tuples."""
    with _at("count", None):
        return Windowing(Count(size, slide if slide is not None else size))


def _text(method: str, text: str) -> Text:
    return Text(text, f"{method}({text!r})", numbers_lines=False)


def _phrase(method: str, text: str) -> Phrase:
    return _text(method, text).phrase()


def _items(method: str, texts: tuple[str, ...]) -> list[Star | SelectItem]:
    result: list[Star | SelectItem] = []
    for text in texts:
        reader = Reader(_text(method, text))
        result += reader.listed(reader.item)
        reader.end()
    if not result:
        raise InputError("needs at least one column", f"{method}()")
    return result


def _not_star(item: Star | SelectItem) -> SelectItem:
    if isinstance(item, Star):
        raise item.phrase.error("* cannot be used here; list the columns")
    return item


def _lateness(method: str, text: str | None) -> int:
    with _at(method, None):
        return 0 if text is None else duration_ms(text)


def _bound(method: str, within: str | None, window: PairWindow | Windowing | None, lateness: str | None) -> Bound:
    with _at(method, None):
        chosen = window.window if isinstance(window, Windowing) else window
        if (within is None) == (chosen is None):
            raise InputError('needs either within="10 s" or window=tumbling("10 s")')
        if within is not None:
            return Bound(Within(duration_ms(within)), _lateness(method, lateness))
        if not isinstance(chosen, Tumbling | Sliding | Within):
            raise InputError(f"takes tumbling or sliding windows, not {chosen}")
        return Bound(chosen, _lateness(method, lateness))


def _at(method: str, phrase: Phrase | None) -> AbstractContextManager[None]:
    """Errors without a place get the method, with its text when it has one."""
    return phrase.text.at(0) if phrase is not None else _place(f"{method}()")


@contextmanager
def _place(where: str) -> Iterator[None]:
    try:
        yield
    except InputError as error:
        raise error.at(where) from None
