"""The texts of queries, as the ledger keeps them, and the queries that they describe."""

from __future__ import annotations

from collections.abc import Mapping

from meander.lang.sql.script import sql
from meander.model.errors import InputError
from meander.model.ids import QueryId
from meander.model.plan import Query
from meander.model.streams import SinkTarget, Stream


def planned(name: QueryId, text: str, streams: Mapping[str, Stream], sinks: Mapping[str, SinkTarget]) -> Query:
    """The query that a text of one SELECT describes, under this name unless the text names it."""
    script = sql(text, streams, sinks, name)
    if script.streams or script.sinks:
        raise InputError("streams and sinks belong to the topology; leave CREATE STREAM and CREATE SINK out")
    if len(script.queries) != 1:
        raise InputError(f"one query at a time, not {len(script.queries)}; send each on its own")
    return script.queries[0]
