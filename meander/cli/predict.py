"""`meander predict`: where mobile nodes are expected to go next, and what is prepared for that."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from meander.cli.client import HERE, Directory, Json, Token, Url, connect, show
from meander.model.errors import unknown

commands = typer.Typer()
SHOWN = 10
"""So many of the last moves."""


@commands.command()
def predict(
    node: Annotated[str | None, typer.Argument(help="Only this node.", show_default=False)] = None,
    directory: Directory = HERE,
    url: Url = None,
    token: Token = None,
    as_json: Json = False,
) -> None:
    """Show where mobile nodes are expected to go, and what is prepared for that."""
    found = connect(directory, url, token).get("/predictions")
    if node is not None:
        known = [n["node"] for n in found["nodes"]]
        if node not in known:
            raise unknown("mobile node", node, known)
        for part in ("nodes", "recent"):
            found[part] = [n for n in found[part] if n["node"] == node]
    if as_json:
        show(found)
        return
    if found["mode"] == "off":
        typer.echo("nothing is predicted; start the coordinator with --predict markov, or a timetable")
        return
    table = Table(box=None, pad_edge=False)
    for heading in ("node", "at", "next", "probability", "in", "prepared"):
        table.add_column(heading, overflow="fold")
    for each in found["nodes"]:
        likely = "" if each["probability"] is None else f"{each['probability']:.2f}"
        when = "" if each["in_s"] is None else f"{each['in_s']:.0f} s"
        table.add_row(each["node"], each["at"], each["next"] or "unknown", likely, when, _prepared(each))
    Console(highlight=False).print(table)
    for move in found["recent"][:SHOWN]:
        typer.echo(_came(move))
    outcomes = ", ".join(f"{count} {outcome}" for outcome, count in found["outcomes"].items())
    typer.echo(
        f"moves so far: {outcomes}; sent ahead {_size(found['used_bytes'])}, in vain {_size(found['wasted_bytes'])}"
    )


def _came(move: dict[str, Any]) -> str:
    """The outcome of an expected move."""
    when = datetime.fromtimestamp(move["at_ms"] / 1000, UTC).strftime("%H:%M:%S")
    expected = f"expected with {move['probability']:.2f}"
    sent = f", {_size(move['bytes'])} sent ahead" if move["bytes"] else ""
    if move["to"] is None:
        return f"{when}  {move['node']} stayed at {move['from']}; {move['expected']} was {expected}{sent}"
    told = expected if move["outcome"] == "hit" else f"{move['expected']} was {expected}"
    return f"{when}  {move['node']} {move['from']} -> {move['to']}: {told}{sent}"


def _prepared(each: dict[str, Any]) -> str:
    if each["prepared_for"] is None:
        return ""
    count = len(each["operators"])
    operators = f"{count} operator{'s' if count != 1 else ''}"
    return f"{operators} at {each['prepared_for']}, {_size(each['bytes'])}{'' if each['ready'] else ' so far'}"


def _size(count: int) -> str:
    return f"{count / 1e6:.1f} MB" if count >= 100_000 else f"{count / 1e3:.1f} kB"
