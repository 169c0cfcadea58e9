"""The query languages: fluent Python and SQL, both turned into a query plan."""

from meander.lang.fluent import DataStream, Environment, Output, count, session, sliding, tumbling
from meander.lang.query_files import load_queries, query
from meander.lang.sql.script import Script, sql

__all__ = [
    "DataStream",
    "Environment",
    "Output",
    "Script",
    "count",
    "load_queries",
    "query",
    "session",
    "sliding",
    "sql",
    "tumbling",
]
