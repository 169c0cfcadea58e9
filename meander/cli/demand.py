"""`meander demand`: read demands, see which mechanism could meet them, and change those of a running query."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table as Grid

from meander.cli.client import HERE, Directory, Json, QueryName, Token, Url, at, connect, show

if TYPE_CHECKING:
    from meander.local.forecast_table import Table

group = typer.Typer(no_args_is_help=True, help="Read demands, and see which mechanism could meet them.")


@group.command()
def check(
    text: Annotated[str, typer.Argument(help="Demands, as after DEMAND in SQL.", show_default=False)],
    hour: Annotated[int | None, typer.Option(min=0, max=23, help="Also say which apply at this hour.")] = None,
    weekday: Annotated[int | None, typer.Option(min=1, max=7, help="And on this day; 1 is Monday.")] = None,
    as_json: Json = False,
) -> None:
    """Show how demands are understood, or their mistakes."""
    from meander.lang.demands import parse_demands
    from meander.model.conditions import Fact

    demands = parse_demands(text)
    facts = {fact: float(v) for fact, v in ((Fact.HOUR, hour), (Fact.WEEKDAY, weekday)) if v is not None}
    applies = [demand.applies(facts) for demand in demands]
    if as_json:
        shown = [
            {"demand": str(d), **({"applies": now} if facts else {})} for d, now in zip(demands, applies, strict=True)
        ]
        typer.echo(json.dumps(shown, indent=2, ensure_ascii=False))
        return
    for demand, now in zip(demands, applies, strict=True):
        mark = ("  applies" if now else "  does not apply") if facts else ""
        typer.echo(f"{demand}{mark}")


@group.command(name="try")
def try_(
    topology: Annotated[Path, typer.Option("--topology", "-t", help="Topology file.", show_default=False)],
    queries: Annotated[
        Path, typer.Option("--queries", "-q", help="A .sql or .py file, or a folder of them.", show_default=False)
    ],
    seed: Annotated[int, typer.Option(help="For mechanisms that draw numbers.")] = 0,
    as_json: Json = False,
) -> None:
    """Ask every mechanism for a forecast of each query, and name demands that none can meet."""
    from meander.local.forecast_table import forecast
    from meander.local.placement_replay import read_setting

    tables = forecast(read_setting(topology, queries, None), seed)
    if as_json:
        typer.echo(json.dumps([table.as_json() for table in tables], indent=2, ensure_ascii=False))
        return
    for number, table in enumerate(tables):
        if number:
            typer.echo()
        _print(table)


def _print(table: Table) -> None:
    from meander.local.forecast_table import FORECAST, WINDOWED

    demands = table.query.demands
    typer.echo(f"query {table.query.id}: {', '.join(map(str, demands)) or 'demands nothing'}")
    grid = Grid(box=None, pad_edge=False)
    for heading in ("", *(metric.value for metric in FORECAST), "misses"):
        grid.add_column(heading, justify="left" if heading in ("", "misses") else "right")
    for row in table.rows:
        cells = [f"{row.values[m]:.4g}" if m in row.values else "" for m in FORECAST]
        grid.add_row(row.mechanism, *cells, row.refusal or ", ".join(d.core for d in row.misses(demands)))
    Console(highlight=False, width=None if Console().is_terminal else 160).print(grid)
    for demand, best, name in table.infeasible():
        value = demand.show(float(f"{best:.4g}"))
        typer.echo(f"infeasible here: {demand.core}; the best is {value} by {name}")
    left = [d.core for d in demands if d.metric in WINDOWED]
    if left:
        typer.echo(f"only running shows: {', '.join(left)}")


@group.command("set")
def set_demands(
    query: QueryName,
    demands: Annotated[
        list[str] | None, typer.Argument(help="Demands such as 'latency < 1 s'; none takes them all back.")
    ] = None,
    directory: Directory = HERE,
    url: Url = None,
    token: Token = None,
    as_json: Json = False,
) -> None:
    """Change the demands of a running query."""
    found = connect(directory, url, token).send("PUT", at(query, "demands"), {"demands": demands or []})
    if as_json:
        show(found)
        return
    typer.echo(f"query {found['id']} demands {', '.join(d['text'] for d in found['demands']) or 'nothing'}")
