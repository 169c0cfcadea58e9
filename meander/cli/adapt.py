"""`meander adapt`: what the adaptation loop decided and why, and the settings by which it decides."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from meander.adapt.decision_log import read, told
from meander.adapt.decisions import DecisionAction
from meander.cli.client import HERE, Directory, Json, Token, Url, at, connect
from meander.cli.client import show as show_json
from meander.model.errors import InputError, unknown

EMPTY = {"mechanisms": "all"}
"""The meaning of lists that are empty, where it is not that there is nothing."""
group = typer.Typer(no_args_is_help=True, help="What the adaptation loop decided and why, and its settings.")


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


OfQuery = Annotated[str | None, typer.Argument(help="A query; without it, all queries.", show_default=False)]


@group.command()
def show(
    query: OfQuery = None, directory: Directory = HERE, url: Url = None, token: Token = None, as_json: Json = False
) -> None:
    """Show the settings that apply, and where each comes from."""
    _tell(connect(directory, url, token).get(_path(query)), as_json)


@group.command(name="set")
def set_(
    words: Annotated[
        list[str],
        typer.Argument(help="Settings as name=value, after the name of a query if they are for one.", metavar="..."),
    ],
    directory: Directory = HERE,
    url: Url = None,
    token: Token = None,
    as_json: Json = False,
) -> None:
    """Change settings while queries run, such as `set slow selector=thompson stay=1min`; a restart keeps them."""
    query = words[0] if "=" not in words[0] else None
    values = settings_of(words if query is None else words[1:])
    _tell(connect(directory, url, token).send("PATCH", _path(query), {"settings": values}), as_json)


@group.command()
def reset(
    words: Annotated[
        list[str] | None,
        typer.Argument(help="A query, settings, or both; without any, all settings of all queries.", metavar="..."),
    ] = None,
    directory: Directory = HERE,
    url: Url = None,
    token: Token = None,
    as_json: Json = False,
) -> None:
    """Take back what was set at run time: `reset`, `reset margin`, `reset slow`, `reset slow margin`."""
    from meander.adapt.setting_layers import SETTINGS  # brings the mechanisms along

    known = {s.name for s in SETTINGS}
    found = list(words or ())
    query = found.pop(0) if found and found[0] not in known else None
    answer = connect(directory, url, token).send("DELETE", _path(query), name=found)
    if not as_json:
        typer.echo(f"taken back: {', '.join(answer['reset'])}" if answer["reset"] else "nothing was set")
    _tell(answer, as_json)


@group.command()
def mechanisms(directory: Directory = HERE, url: Url = None, token: Token = None, as_json: Json = False) -> None:
    """Show the mechanisms, the queries that each places, and the bytes that it has exchanged."""
    client = connect(directory, url, token)
    found, queries = client.get("/mechanisms"), client.get("/queries")
    if as_json:
        show_json(found)
        return
    parts = ("placement", "cost_space", "control", "state")
    table = Table(box=None, pad_edge=False)
    table.add_column("mechanism", no_wrap=True)
    for part in parts:
        table.add_column(part.replace("_", " "), justify="right", no_wrap=True)
    table.add_column("places now")
    for each in found:
        sent = (f"{each['exchanged_bytes'].get(part, 0):,}" for part in parts)
        placed = ", ".join(q["id"] for q in queries if q["mechanism"] == each["name"])
        table.add_row(each["name"], *sent, placed)
    Console(highlight=False).print(table)
    typer.echo("bytes since the coordinator started; what queries share is divided among them")


def settings_of(words: list[str]) -> dict[str, str]:
    """Settings as people type them.

    >>> settings_of(["stay=1min", "margin=0.2"])
    {'stay': '1min', 'margin': '0.2'}
    """
    found: dict[str, str] = {}
    for word in words:
        name, sign, value = word.partition("=")
        if not sign:
            raise InputError(f"{word!r} is no setting; write name=value, such as stay=1min")
        found[name] = value
    if not found:
        raise InputError("say what to set, as name=value; `meander adapt show` names all settings")
    return found


def _path(query: str | None) -> str:
    return "/adaptation" if query is None else at(query, "adaptation")


def _tell(found: dict[str, Any], as_json: bool) -> None:
    if as_json:
        show_json(found)
        return
    rows = [(s["name"], _shown(s["value"], s["name"]), s["source"], s["about"]) for s in found["settings"]]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    for row in rows:
        typer.echo("  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[3]]))
    if found["query"] is None and found["queries_with_own"]:
        typer.echo(f"queries with settings of their own: {', '.join(found['queries_with_own'])}")


def _shown(value: Any, name: str) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if not isinstance(value, list):
        return str(value)
    return ", ".join(f"{v:g}" if isinstance(v, float) else str(v) for v in value) or EMPTY.get(name, "none")
