"""`meander audit`: the changes that were asked of a coordinator, and the refused ones."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from meander.cli.client import HERE, Directory, Json, Token, Url, connect, show
from meander.coordinator.directory.directory import CoordinatorDirectory, announced
from meander.coordinator.membership.store import MembershipStore

commands = typer.Typer()


@commands.command()
def audit(
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=1000, help="How many, of the newest.")] = 50,
    since: Annotated[int, typer.Option(min=0, help="Only those after this number.")] = 0,
    directory: Directory = HERE,
    url: Url = None,
    token: Token = None,
    as_json: Json = False,
) -> None:
    """Show who did what: sites that joined, left or were refused, tokens, and requests that change something."""
    home = CoordinatorDirectory(directory)
    if url is None:
        home.check()
    found = announced(home) if url is None else None
    if url is not None or (found is not None and found.runs):
        entries = connect(directory, url, token).get("/audit", limit=limit, since=since)
    else:
        store = MembershipStore(home.ledger)
        entries = store.audit.newest(limit, since)
        store.close()
    if as_json:
        show(entries)
        return
    for e in entries:
        at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(e["at_ms"] / 1000))
        typer.echo(f"{e['number']:>6}  {at}  {e['who']:<16} {e['did']} {e['about']}: {e['outcome']}")
