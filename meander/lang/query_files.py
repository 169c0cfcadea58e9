"""Query files: a script in SQL, or Python whose functions marked with `@query` build queries.

@query
def slow_trains(env: Environment) -> Output:
    return env.stream("train").where("speed < 30").into("alerts")
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from meander.lang.fluent import Environment, Output
from meander.lang.sql.script import Script, sql
from meander.model.errors import InputError
from meander.model.plan import Query
from meander.model.streams import Stream


@dataclass(frozen=True)
class QueryDefinition:
    """A function that builds a query from the streams there are; the query has the function's name."""

    name: str
    build: Callable[[Environment], Output]

    def __call__(self, environment: Environment) -> Query:
        output = self.build(environment)
        if not isinstance(output, Output):
            raise InputError(f"query {self.name!r} returns no finished query; end it with .into(sink)")
        return output.query(self.name)


def query(function: Callable[[Environment], Output]) -> QueryDefinition:
    """Marks a function of a query file as a query."""
    return QueryDefinition(function.__name__, function)


def load_queries(
    path: Path, streams: Mapping[str, Stream] | None = None, sinks: Collection[str] | None = None
) -> Script:
    """The queries of a `.sql` or `.py` file. Errors name the file and the line."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise InputError(f"cannot read the query file: {reason}", str(path)) from None
    if path.suffix == ".py":
        return _load_python(path, text, Environment(streams or {}, sinks))
    try:
        return sql(text, streams, sinks, path.stem)
    except InputError as error:
        raise error.inside(str(path)) from None


def _load_python(path: Path, text: str, environment: Environment) -> Script:
    namespace: dict[str, object] = {"__name__": path.stem, "__file__": str(path)}
    try:
        exec(compile(text, str(path), "exec"), namespace)
        found = [v for v in namespace.values() if isinstance(v, QueryDefinition)]
        queries = tuple(definition(environment) for definition in found)
    except InputError as error:
        raise error.inside(_line(path, error.__traceback__)) from None
    except SyntaxError as error:
        raise InputError(f"not valid Python: {error.msg}", f"{path}, line {error.lineno}") from None
    except Exception as error:
        raise InputError(f"{type(error).__name__}: {error}", _line(path, error.__traceback__)) from error
    if not queries:
        raise InputError("no query in this file; mark the functions that build one with @query", str(path))
    return Script(queries=queries)


def _line(path: Path, trace: TracebackType | None) -> str:
    """The file with the last of its lines that ran."""
    line: int | None = None
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == str(path):
            line = trace.tb_lineno
        trace = trace.tb_next
    return f"{path}, line {line}" if line else str(path)
