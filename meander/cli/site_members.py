"""`meander site token`, `list`, `release`: which sites may join, and which have. Tokens can be made before it runs."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from meander.cli.client import HERE, Directory, Json, ServiceClient, Token, Url, connect, show
from meander.cli.site import group
from meander.coordinator.directory.directory import CoordinatorDirectory, announced
from meander.coordinator.membership.store import MembershipStore
from meander.coordinator.request_values import check_name
from meander.model.clock import wall_clock_ms

tokens = typer.Typer(no_args_is_help=True, help="Make, list and revoke the tokens that let sites join.")
group.add_typer(tokens, name="token")
SiteName = Annotated[str, typer.Argument(metavar="SITE", help="The site's name.", show_default=False)]
OPERATOR = "operator"


@tokens.command("create")
def create(
    name: SiteName,
    nodes: Annotated[str, typer.Option(help="Nodes it may act for, such as train-7,train-8 or 'train-*'.")],
    renew: Annotated[bool, typer.Option("--renew", help="Replace the token that the site has.")] = False,
    directory: Directory = HERE,
    url: Url = None,
    token: Token = None,
    as_json: Json = False,
) -> None:
    """Make a token. It is shown once; only its hash is kept."""
    names = [n.strip() for n in nodes.split(",") if n.strip()]
    client = _running(directory, url, token)
    if client is not None:
        body = {"site": name, "nodes": names, "renew": renew}
        made = client.send("POST", "/site-tokens", body)["token"]
    else:
        for each in (name, *names):
            check_name(each, "a name")
        with _store(directory) as store:
            made = store.make_token(name, names, wall_clock_ms(), OPERATOR, renew=renew)
    if as_json:
        show({"site": name, "nodes": names, "token": made})
    else:
        typer.echo(made)


@tokens.command("list")
def list_tokens(directory: Directory = HERE, url: Url = None, token: Token = None, as_json: Json = False) -> None:
    """Show which sites have a token, and for which nodes."""
    client = _running(directory, url, token)
    if client is not None:
        found = client.get("/site-tokens")
    else:
        with _store(directory) as store:
            found = [given.as_json() for given in store.passes()]
    if as_json:
        show(found)
        return
    _print(("site", "nodes", "made"), [(t["site"], ", ".join(t["nodes"]), _when(t["made_ms"])) for t in found])


@tokens.command("revoke")
def revoke(name: SiteName, directory: Directory = HERE, url: Url = None, token: Token = None) -> None:
    """Make a token useless at once. If its site is there, its nodes go."""
    client = _running(directory, url, token)
    if client is not None:
        client.send("DELETE", f"/site-tokens/{name}")
    else:
        with _store(directory) as store:
            store.revoke(name, wall_clock_ms(), OPERATOR)
    typer.echo(f"the token of site {name} is good no more")


@group.command("list")
def list_sites(directory: Directory = HERE, url: Url = None, token: Token = None, as_json: Json = False) -> None:
    """Show the sites of a running coordinator: which are there, and with which nodes."""
    found = connect(directory, url, token).get("/sites")
    if as_json:
        show(found)
        return
    headings = ("site", "state", "nodes", "address", "version", "since", "last heard", "replicas")
    rows = [
        (
            s["site"],
            s["state"],
            ", ".join(s["nodes"]),
            s.get("address") or "",
            _version(s),
            _when(s["since_ms"]) if s.get("since_ms") else "",
            f"{s['silent_ms'] / 1000:.1f} s ago" if s.get("silent_ms") is not None else "",
            _replicas(s),
        )
        for s in found
    ]
    _print(headings, rows)


@group.command("show")
def show_site(
    name: SiteName, directory: Directory = HERE, url: Url = None, token: Token = None, as_json: Json = False
) -> None:
    """Show one site: its state, its nodes, and where replicas of its store are."""
    found = connect(directory, url, token).get(f"/sites/{name}")
    if as_json:
        show(found)
        return
    replicas = found.get("replicas") or {}
    rows = [(key, str(found.get(key) or "")) for key in ("site", "state", "address")]
    rows.append(("version", _version(found)))
    rows.insert(2, ("nodes", ", ".join(found["nodes"])))
    for lag in replicas.get("lags", ()):
        behind = f", {lag['behind_bytes']:,} bytes and {lag['behind_ms']:,} ms behind"
        words = {"serving": "goes on in its place", "incomplete": f"being made, {lag['behind_bytes']:,} bytes to go"}
        rows.append((f"replica at {lag['keeper']}", words.get(lag["state"], lag["state"] + behind)))
    if replicas.get("is_forgotten"):
        rows.append(("given up", "it ends when nothing of it runs any more"))
    if replicas.get("problem"):
        rows.append(("problem", replicas["problem"]))
    _print(("", ""), rows)


def _version(site: dict[str, Any]) -> str:
    """The version of Meander that a site runs, and the protocol that it speaks with the coordinator."""
    return f"{site['version']} (protocol {site['protocol']})" if site.get("version") else ""


def _replicas(site: dict[str, Any]) -> str:
    """The keepers of a site's replicas, in a few words."""
    replicas = site.get("replicas") or {}
    if replicas.get("stands_in"):
        return f"goes on at {replicas['stands_in']}"
    lags = replicas.get("lags", ())
    return ", ".join(k["keeper"] if k["state"] == "in step" else f"{k['keeper']} ({k['state']})" for k in lags)


@group.command("forget")
def forget(name: SiteName, directory: Directory = HERE, url: Url = None, token: Token = None) -> None:
    """Give up a site whose directory is lost for good: what ran there goes on elsewhere, or can be stopped."""
    found = connect(directory, url, token).send("POST", f"/sites/{name}/forget")
    where = found["goes_on_at"]
    typer.echo(f"site {name} is given up" + (f"; what ran there goes on at {where}" if where else ""))
    for text in found["lost"]:
        typer.echo(f"lost: {text}")


@group.command("release")
def release(name: SiteName, directory: Directory = HERE, url: Url = None, token: Token = None) -> None:
    """Take a site's nodes from it: it is not expected back, and another site may have them."""
    connect(directory, url, token).send("POST", f"/sites/{name}/release")
    typer.echo(f"site {name} has no nodes any more")


def _running(directory: Path, url: str | None, token: str | None) -> ServiceClient | None:
    """The coordinator, if one runs or an address is given."""
    if url is None:
        home = CoordinatorDirectory(directory)
        home.check()
        found = announced(home)
        if found is None or not found.runs:
            return None
    return connect(directory, url, token)


@contextmanager
def _store(directory: Path) -> Iterator[MembershipStore]:
    store = MembershipStore(CoordinatorDirectory(directory).ledger)
    try:
        yield store
    finally:
        store.close()


def _print(headings: tuple[str, ...], rows: list[tuple[Any, ...]]) -> None:
    table = Table(box=None, pad_edge=False)
    for heading in headings:
        table.add_column(heading, overflow="fold")
    for row in rows:
        table.add_row(*row)
    Console(highlight=False).print(table)


def _when(at_ms: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at_ms / 1000))
