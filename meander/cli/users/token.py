"""`meander token`: who may look at a coordinator, operate it, and say who may. Tokens can be made before it runs."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from meander.cli.client import HERE, Directory, Json, ServiceClient, Token, Url, connect, show
from meander.coordinator.directory.directory import CoordinatorDirectory, announced
from meander.coordinator.security.tokens import Tokens, role_by

group = typer.Typer(no_args_is_help=True, help="Make, list and revoke tokens of users, and links to the page.")
User = Annotated[str, typer.Argument(metavar="NAME", help="The user's name.", show_default=False)]


@group.command("make")
def make(
    name: User,
    role: Annotated[
        str, typer.Option(help="reader looks, operator changes things, admin says who may, device sends rows.")
    ] = "reader",
    renew: Annotated[bool, typer.Option("--renew", help="Replace the token that the user has.")] = False,
    directory: Directory = HERE,
    url: Url = None,
    token: Token = None,
    as_json: Json = False,
) -> None:
    """Make a token for a user. It is shown once; only its hash is kept."""
    chosen = role_by(role)
    client = _running(directory, url, token)
    if client is not None:
        made = client.send("POST", "/tokens", {"name": name, "role": chosen.value, "renew": renew})["token"]
    else:
        made = Tokens.load(CoordinatorDirectory(directory).tokens).make(name, chosen, renew=renew)
    if as_json:
        show({"name": name, "role": chosen.value, "token": made})
    else:
        typer.echo(made)


@group.command("list")
def list_tokens(directory: Directory = HERE, url: Url = None, token: Token = None, as_json: Json = False) -> None:
    """Show who has a token, and with which role."""
    client = _running(directory, url, token)
    if client is not None:
        found = client.get("/tokens")
    else:
        found = [each.as_json() for each in Tokens.load(CoordinatorDirectory(directory).tokens).listed()]
    if as_json:
        show(found)
        return
    table = Table(box=None, pad_edge=False)
    for heading in ("name", "role", "made"):
        table.add_column(heading, overflow="fold")
    for each in found:
        made = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(each["made_ms"] / 1000)) if each["made_ms"] else ""
        table.add_row(each["name"], each["role"], made)
    Console(highlight=False).print(table)


@group.command("revoke")
def revoke(name: User, directory: Directory = HERE, url: Url = None, token: Token = None) -> None:
    """Make a token useless at once, and end the sessions of the page that it opened."""
    client = _running(directory, url, token)
    if client is not None:
        client.send("DELETE", f"/tokens/{name}")
    else:
        Tokens.load(CoordinatorDirectory(directory).tokens).revoke(name)
    typer.echo(f"the token of {name} is good no more")


@group.command("link")
def link(directory: Directory = HERE, url: Url = None, token: Token = None, as_json: Json = False) -> None:
    """Make a link that opens the page: good once, and for an hour."""
    client = connect(directory, url, token)
    found = client.address + client.send("POST", "/links")["link"]
    if as_json:
        show({"link": found})
    else:
        typer.echo(found)


def _running(directory: Path, url: str | None, token: str | None) -> ServiceClient | None:
    """The coordinator, if one runs or an address is given."""
    if url is None:
        home = CoordinatorDirectory(directory)
        home.check()
        found = announced(home)
        if found is None or not found.runs:
            return None
    return connect(directory, url, token)
