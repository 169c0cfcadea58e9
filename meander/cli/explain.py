"""`meander explain`: what a query will do and, on a topology, how long its data takes to arrive, without running it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from meander.cli.commands import DETOUR_HELP, MECHANISM_NAMES
from meander.lang.explain import explain_json, explain_text
from meander.lang.query_files import load_queries
from meander.lang.sql.script import Script, sql
from meander.model.errors import InputError, unknown
from meander.model.plan import Query, drawn
from meander.model.resilience import check_detour
from meander.model.streams import SinkTarget, Stream

if TYPE_CHECKING:
    from meander.lang.topology.reader import TopologyFile
    from meander.place.forecast import RouteForecast

commands = typer.Typer()

_SUFFIXES = (".sql", ".py")
MOST_ROUTES = 8
"""Routes that the text shows; JSON has all."""


@commands.command()
def explain(
    query: Annotated[str, typer.Argument(help="A .sql or .py file, or the SQL text itself.", show_default=False)],
    topology: Annotated[
        Path | None, typer.Option("--topology", "-t", help="Topology file with the streams and sinks.")
    ] = None,
    mechanism_name: Annotated[
        str,
        typer.Option("--mechanism", "-m", help="Who places it on the topology: " + ", ".join(MECHANISM_NAMES)),
    ] = "bottom_up",
    detour: Annotated[float | None, typer.Option(help=DETOUR_HELP, show_default="the topology's, or 1.5")] = None,
    logical: Annotated[
        bool, typer.Option("--logical", help="Show its plan as it is written and as it is placed, and what changed it.")
    ] = False,
    physical: Annotated[
        bool, typer.Option("--physical", help="Show how the stages of its fragments would run on Spark, and why.")
    ] = False,
    cores: Annotated[
        int | None, typer.Option(min=1, help="With --physical: cores of the machine.", show_default="those of this one")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
) -> None:
    """Show a query's plan: its operators, their columns and signatures, its demands and, with a topology, its routes.

    With --logical, which rewrites make fewer and narrower tuples of it before it is placed, and its operators and
    signatures after them.

    With --physical, how it would run instead: its fragments, their stages, which rewrites apply to each, and from which
    batch sizes on. Nothing is started for it.
    """
    if mechanism_name not in MECHANISM_NAMES:
        raise unknown("mechanism", mechanism_name, MECHANISM_NAMES)
    if detour is not None:
        check_detour(detour)
    contents = None if topology is None else _loaded(topology)
    script = _script(query, contents.streams if contents else {}, contents.sinks if contents else None)
    if not script.queries:
        raise InputError("there is no query to explain; add a SELECT", query if _is_file(query) else None)
    if logical:
        _show_logical(script, as_json=as_json)
        return
    if physical:
        _show_physical(script, contents, mechanism_name, cores, as_json=as_json)
        return
    routes = (
        [_forecast(contents, script, query, mechanism_name, detour) for query in script.queries] if contents else []
    )
    if as_json:
        found = [explain_json(q) for q in script.queries]
        for each, forecast_ in zip(found, routes, strict=False):
            each["placement"] = forecast_.as_json()
        typer.echo(json.dumps(found, indent=2, ensure_ascii=False))
        return
    texts = [explain_text(q) for q in script.queries]
    for at, forecast_ in enumerate(routes):
        title, *lines = forecast_.lines(MOST_ROUTES)
        texts[at] += "\n".join(["", "", f"  {title}", *(f"        {line}" for line in lines)])
    typer.echo("\n\n".join(texts))


def _loaded(topology: Path) -> TopologyFile:
    """A query alone is explained without what only topologies need."""
    from meander.lang.topology.reader import load

    return load(topology)


def _forecast(
    contents: TopologyFile, script: Script, query: Query, mechanism_name: str, detour: float | None
) -> RouteForecast:
    from meander.place.catalog import Catalog
    from meander.place.forecast import forecast
    from meander.place.mechanisms import mechanism

    streams, sinks = {**contents.streams, **script.streams}, {**contents.sinks, **script.sinks}
    limit = contents.resilience.detour if detour is None else detour
    return forecast(Catalog(contents.topology, streams, sinks, detour=limit), query, mechanism(mechanism_name))


def _show_logical(script: Script, *, as_json: bool) -> None:
    """Each query as written, the rewrites that apply, and what they make of it."""
    from meander.place.rewrites import rewrites, rewritten

    found = [(query, list(rewrites(query.plan))) for query in script.queries]
    placed = [replace(query, plan=rewritten(query.plan)) for query in script.queries]
    if as_json:
        rows = []
        for (query, steps), after in zip(found, placed, strict=True):
            written, made = explain_json(query), explain_json(after)
            names = [name for name, _ in steps]
            rows.append({**made, "written": written["operators"], "rewrites": names})
        typer.echo(json.dumps(rows, indent=2, ensure_ascii=False))
        return
    texts = []
    for (query, steps), after in zip(found, placed, strict=True):
        before = "\n".join(f"  {line}" for line in drawn(query.plan).splitlines())
        applied = ", ".join(dict.fromkeys(name.replace("_", " ") for name, _ in steps)) or "none applies"
        title, tree = explain_text(after).split("\n", 1)
        texts.append(f"{title}, as written\n\n{before}\n\nrewrites: {applied}\n\nas it is placed\n{tree}")
    typer.echo("\n\n".join(texts))


def _show_physical(
    script: Script, contents: TopologyFile | None, mechanism_name: str, cores: int | None, *, as_json: bool
) -> None:
    """Each query placed alone; without a topology as one fragment."""
    from meander.local.physical import PlannedQuery, planned_query  # it imports PySpark, which takes a second

    found: list[PlannedQuery] = [
        planned_query(script, query, contents, mechanism_name, cores) for query in script.queries
    ]
    if as_json:
        typer.echo(json.dumps([each.as_json() for each in found], indent=2, ensure_ascii=False))
    else:
        typer.echo("\n\n".join(each.text() for each in found))


def _script(query: str, streams: dict[str, Stream], sinks: dict[str, SinkTarget] | None) -> Script:
    return load_queries(Path(query), streams, sinks) if _is_file(query) else sql(query, streams, sinks)


def _is_file(query: str) -> bool:
    """A single word with a known ending is a file, everything else is SQL."""
    return query.endswith(_SUFFIXES) and "\n" not in query
