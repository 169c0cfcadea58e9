"""`meander node list`, `remove`, `restore`, `forget`: nodes of a running coordinator that go and come back."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from meander.cli.changes import tell
from meander.cli.client import HERE, Directory, Json, Token, Url, connect, show

group = typer.Typer(no_args_is_help=True, help="Remove nodes, and bring them back as they were.")
Names = Annotated[list[str], typer.Argument(metavar="NODE...", help="Names of nodes.", show_default=False)]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only say what would happen.")]


@group.command("list")
def list_nodes(
    removed: Annotated[bool, typer.Option("--removed", help="Only those that were removed.")] = False,
    directory: Directory = HERE,
    url: Url = None,
    token: Token = None,
    as_json: Json = False,
) -> None:
    """List nodes, and with how many links those come back that were removed."""
    nodes = connect(directory, url, token).get("/topology")["nodes"]
    found = [n for n in nodes if not (removed and n["alive"])]
    if as_json:
        show(found)
        return
    if not found:
        typer.echo("no node was removed" if removed else "no nodes")
        return
    table = Table(box=None, pad_edge=False)
    for heading in ("node", "kind", "operators", "state"):
        table.add_column(heading, overflow="fold")
    for n in found:
        table.add_row(n["name"], n["kind"], f"{n['used']} of {n['capacity']}", _state(n))
    Console(highlight=False).print(table)


def _state(node: dict[str, Any]) -> str:
    if node["alive"]:
        return "there"
    links = len(node.get("comes_back_with") or ())
    return f"removed; comes back with {links} {'link' if links == 1 else 'links'}"


@group.command()
def remove(
    nodes: Names,
    dry_run: DryRun = False,
    directory: Directory = HERE,
    url: Url = None,
    token: Token = None,
    as_json: Json = False,
) -> None:
    """Remove nodes with their links, as when they fail. Their links and capacity are kept."""
    events = [{"event": "node_removed", "node": name} for name in nodes]
    _send("/events", {"events": events}, dry_run, (directory, url, token), as_json)


@group.command()
def restore(
    nodes: Names,
    dry_run: DryRun = False,
    directory: Directory = HERE,
    url: Url = None,
    token: Token = None,
    as_json: Json = False,
) -> None:
    """Bring removed nodes back as they were, with their links; a link comes when both its ends are there."""
    _send("/nodes/restore", {"nodes": nodes}, dry_run, (directory, url, token), as_json)


def _send(path: str, body: Any, dry_run: bool, where: tuple[Any, Any, Any], as_json: bool) -> None:
    found = connect(*where).send("POST", path, body, **({"dry_run": "true"} if dry_run else {}))
    if as_json:
        show(found)
        return
    if dry_run:
        typer.echo("nothing was changed; this would happen:")
    tell(found)


@group.command()
def forget(
    nodes: Names,
    directory: Directory = HERE,
    url: Url = None,
    token: Token = None,
    as_json: Json = False,
) -> None:
    """Forget removed nodes that are not wanted back."""
    found = connect(directory, url, token).send("POST", "/nodes/forget", {"nodes": nodes})
    if as_json:
        show(found)
    else:
        typer.echo(f"forgotten: {', '.join(found['forgotten'])}")
