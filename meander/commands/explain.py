"""`meander explain`: what a query will do, without running it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from meander.lang.explain import explain_json, explain_text
from meander.lang.load import load_queries
from meander.lang.sql_script import Script, sql
from meander.lang.topology_file import load
from meander.model.errors import InputError
from meander.model.streams import SinkTarget, Stream

_SUFFIXES = (".sql", ".py")


def register(app: typer.Typer) -> None:
    app.command(rich_help_panel="Queries")(explain)


def explain(
    query: Annotated[str, typer.Argument(help="A .sql or .py file, or the SQL text itself.", show_default=False)],
    topology: Annotated[
        Path | None, typer.Option("--topology", "-t", help="Topology file with the streams and sinks.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
) -> None:
    """Show a query's plan: its operators, their columns and signatures, and its demands."""
    contents = load(topology) if topology is not None else None
    script = _script(query, contents.streams if contents else {}, contents.sinks if contents else None)
    if not script.queries:
        raise InputError("there is no query to explain; add a SELECT", query if _is_file(query) else None)
    if as_json:
        typer.echo(json.dumps([explain_json(q) for q in script.queries], indent=2))
    else:
        typer.echo("\n\n".join(explain_text(q) for q in script.queries))


def _script(query: str, streams: dict[str, Stream], sinks: dict[str, SinkTarget] | None) -> Script:
    return load_queries(Path(query), streams, sinks) if _is_file(query) else sql(query, streams, sinks)


def _is_file(query: str) -> bool:
    """A single word with a known ending is a file, everything else is SQL."""
    return query.endswith(_SUFFIXES) and "\n" not in query
