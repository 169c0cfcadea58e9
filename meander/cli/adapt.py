"""`meander adapt`: what the adaptation loop decided, and why."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from meander.adapt.decisions import DecisionAction
from meander.adapt.log import read, told
from meander.cli.client import HERE, Directory, Token, Url, connect
from meander.model.errors import unknown

group = typer.Typer(no_args_is_help=True, help="What the adaptation loop decided, and why.")


@group.callback()
def adapt() -> None:
    """Keeps `log` a command of its own although it is the only one."""


@group.command()
def log(
    file: Annotated[
        Path | None,
        typer.Argument(help="Decision log (JSON lines); without it, the coordinator's.", show_default=False),
    ] = None,
    query: Annotated[str | None, typer.Option("--query", "-q", help="Only this query.")] = None,
    action: Annotated[
        str | None, typer.Option("--action", "-a", help=", ".join(a.value for a in DecisionAction))
    ] = None,
    last: Annotated[int | None, typer.Option("--last", "-n", min=1, help="Only the last so many.")] = None,
    details: Annotated[bool, typer.Option("--details", "-d", help="With the numbers behind each decision.")] = False,
    directory: Directory = HERE,
    url: Url = None,
    token: Token = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
) -> None:
    """Show decisions in words, of a running coordinator or from a log file."""
    if action is not None and action not in [a.value for a in DecisionAction]:
        raise unknown("action", action, [a.value for a in DecisionAction])
    found = read(file) if file is not None else connect(directory, url, token).get("/decisions", limit=1000)
    entries = [entry for entry in found if query in (None, entry["query"]) and action in (None, entry["action"])]
    entries = entries[-last:] if last is not None else entries
    if as_json:
        typer.echo(json.dumps(entries, indent=2, ensure_ascii=False))
        return
    for entry in entries:
        typer.echo(told(entry, details=details))
    if not entries:
        typer.echo("no decisions", err=True)
