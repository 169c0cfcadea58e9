"""`meander submit`, `list`, `describe`, `stop`, `switch`: queries of a running coordinator."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from meander.cli.adapt import settings_of
from meander.cli.client import HERE, Directory, Json, QueryName, ServiceClient, Token, Url, at, connect, show
from meander.coordinator.condition.condition import Status
from meander.model.errors import InputError
from meander.model.text_files import read_text
from meander.model.units import duration_ms

commands = typer.Typer()

SHARES = ("p50", "p95", "p99")
FAILED = 1


@commands.command()
def submit(
    query: Annotated[
        str, typer.Argument(help="A .sql file, `-` for standard input, or the SQL itself.", show_default=False)
    ],
    name: Annotated[str | None, typer.Option("--name", "-n", help="Its name; by default the file's.")] = None,
    mechanism: Annotated[
        str | None, typer.Option("--mechanism", "-m", help="What places it at first; by default its demands decide.")
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="An adaptation setting of its own, such as stay=1min; repeatable.")
    ] = None,
    wait: Annotated[str | None, typer.Option(help="Wait until it runs, so long at most, such as 60s.")] = None,
    directory: Directory = HERE,
    url: Url = None,
    token: Token = None,
    as_json: Json = False,
) -> None:
    """Add a query; it is placed and deployed while everything else runs on."""
    text, called = _text(query)
    client = connect(directory, url, token)
    body: dict[str, Any] = {"text": text} | ({"name": n} if (n := name or called) else {})
    body |= {"mechanism": mechanism} if mechanism else {}
    body |= {"adaptation": settings_of(settings)} if settings else {}
    found = client.send("POST", "/queries", body)
    if wait is not None:
        found = _wait(client, found["id"], duration_ms(wait) / 1000)
    if as_json:
        show(found)
    else:
        typer.echo(f"query {found['id']} is {found['status']}{_because(found)}: {found['operators']} operators")
    if wait is not None and not Status(found["status"]).is_deployed:
        raise typer.Exit(FAILED)


def _text(query: str) -> tuple[str, str | None]:
    """The text of a query, and a name for it when there is one."""
    if query == "-":
        return typer.get_text_stream("stdin").read(), None
    path = Path(query)
    if path.suffix == ".py":
        raise InputError("only SQL can be sent to a coordinator; run Python queries with `meander run`", query)
    if path.suffix == ".sql" or (" " not in query and path.is_file()):
        return read_text(path), path.stem
    if " " not in query:
        raise InputError(f"{query!r} is neither a file nor a query")
    return query, None


def _wait(client: ServiceClient, name: str, seconds: float) -> dict[str, Any]:
    deadline = time.monotonic() + seconds
    while True:
        found: dict[str, Any] = client.get(at(name))
        if Status(found["status"]).is_deployed or time.monotonic() >= deadline:
            return found
        time.sleep(0.25)


def _because(found: dict[str, Any]) -> str:
    return f" ({found['reason']})" if found.get("reason") else ""


@commands.command("list")
def list_queries(directory: Directory = HERE, url: Url = None, token: Token = None, as_json: Json = False) -> None:
    """List queries with their conditions."""
    found = connect(directory, url, token).get("/queries")
    if as_json:
        show(found)
    elif not found:
        typer.echo("no queries yet; add one with `meander submit`")
    else:
        console = Console(highlight=False)
        console.print(query_table(found))
        for line in query_reasons(found):
            console.print(line, markup=False, soft_wrap=True)


def query_reasons(queries: list[dict[str, Any]]) -> list[str]:
    """The reasons why queries are not simply running, a line each."""
    return [f"{q['id']} is {q['status']}: {q['reason']}" for q in queries if q.get("reason")]


def query_table(queries: list[dict[str, Any]]) -> Table:
    table = Table(box=None, pad_edge=False)
    for heading in ("query", "status", "mechanism", "results", "per s", "p50 ms", "p95 ms", "demands"):
        table.add_column(heading, justify="right" if heading in ("results", "per s", "p50 ms", "p95 ms") else "left")
    for q in queries:
        numbers = [q["latency_ms"][share] for share in SHARES[:2]]
        demands = ", ".join(f"{_mark(d['met'])} {d['text']}" for d in q["demands"])
        table.add_row(
            q["id"],
            q["status"],
            q["mechanism"],
            f"{q['results']:,}",
            f"{q['rate_tps']:,.1f}",
            *("" if n is None else f"{n:,.0f}" for n in numbers),
            demands,
        )
    return table


def _mark(met: bool | None) -> str:
    return "?" if met is None else "+" if met else "-"


@commands.command()
def describe(
    query: QueryName, directory: Directory = HERE, url: Url = None, token: Token = None, as_json: Json = False
) -> None:
    """Show a query: its operators, where they run and why, its demands and its newest results."""
    client = connect(directory, url, token)
    found = client.get(at(query))
    results = client.get(at(query, "results"), limit=5)
    if as_json:
        show(found | {"newest": results["rows"]})
        return
    typer.echo(f"query {found['id']} is {found['status']}{_because(found)}, placed by {found['mechanism']}")
    if found.get("chosen"):
        typer.echo(f"{found['mechanism']} was chosen: {found['chosen']}")
    typer.echo(found["text"].strip())
    for demand in found["demands"]:
        value = f": {demand['value']:g} {demand.get('unit', '')}".rstrip() if demand.get("value") is not None else ""
        state = "nothing known yet" if demand["met"] is None else "met" if demand["met"] else "not met"
        typer.echo(f"demand {demand['text']}: {state}{value}")
    table = Table(box=None, pad_edge=False)
    for heading in ("operator", "does", "node", "fragment", "why"):
        table.add_column(heading, overflow="fold")
    for o in found["dag"]["operators"]:
        shared = f" (shared by {len(o['queries'])})" if o["shared"] else ""
        table.add_row(str(o["id"]), o["label"] + shared, o["node"] or "-", str(o["fragment"] or "-"), o["why"])
    Console(highlight=False).print(table)
    typer.echo(f"{found['results']:,} results, {found['rate_tps']:g} per second")
    for row in results["rows"]:
        typer.echo(f"  {row}")


@commands.command()
def stop(
    query: QueryName, directory: Directory = HERE, url: Url = None, token: Token = None, as_json: Json = False
) -> None:
    """Stop a query: tuples in flight are delivered, then its resources are freed."""
    found = connect(directory, url, token).send("DELETE", at(query))
    if as_json:
        show(found)
    else:
        typer.echo(f"query {found['id']} is stopping")


@commands.command()
def switch(
    query: QueryName,
    mechanism: Annotated[str, typer.Argument(help="The mechanism that places it from now on.", show_default=False)],
    protocol: Annotated[
        str | None, typer.Option(help="How it moves, such as auto; by default as its adaptation settings say.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show what it would take, by every protocol.")
    ] = False,
    directory: Directory = HERE,
    url: Url = None,
    token: Token = None,
    as_json: Json = False,
) -> None:
    """Let another mechanism place a query; it moves while it runs."""
    body = {"mechanism": mechanism} | ({"protocol": protocol} if protocol else {})
    asked = {"dry_run": "true"} if dry_run else {}
    found = connect(directory, url, token).send("POST", at(query, "switch"), body, **asked)
    if as_json:
        show(found)
        return
    t, p = found["transition"], found["predicted"]
    verb = "would switch" if dry_run else "switches"
    typer.echo(
        f"query {t['query']} {verb} from {t['from']} to {t['to']}: {t['moves']} operators move ({t['protocol']}), "
        f"predicted {p['seconds']:.2g} s and {p['bytes']:,} bytes"
    )
    if dry_run:
        _predicted(found)


def _predicted(found: dict[str, Any]) -> None:
    moves = Table(box=None, pad_edge=False)
    for heading in ("operator", "moves", "route", "why"):
        moves.add_column(heading)
    for o in found["predicted"]["operators"]:
        route = "unlimited" if o["mbps"] is None else f"{o['mbps']:g} Mbit/s"
        moves.add_row(f"{o['operator']} {o['kind']}", o["way"], route, o["why"])
    protocols = Table(box=None, pad_edge=False)
    for heading in ("protocol", "all of it", "bytes", "at both places", "stands still"):
        protocols.add_column(heading, justify="left" if heading == "protocol" else "right")
    for p in found["protocols"]:
        times = [f"{p[key]:.2g} s" for key in ("seconds", "overlap_s", "stop_s")]
        protocols.add_row(p["protocol"], times[0], f"{p['bytes']:,}", *times[1:])
    console = Console(highlight=False)
    console.print(moves)
    console.print(protocols)
