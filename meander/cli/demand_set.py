"""`meander demand set`: changes what a running query demands."""

from __future__ import annotations

from typing import Annotated

import typer

from meander.cli import demand
from meander.cli.client import HERE, Directory, Json, QueryName, Token, Url, at, connect, show


def register(app: typer.Typer) -> None:
    demand.group.command("set")(set_demands)


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
