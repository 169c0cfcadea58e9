"""`meander status`: what a placement runs where, and what waits and why."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Annotated, Any

import typer

from meander.model.errors import InputError

SHOWN = 20


def register(app: typer.Typer) -> None:
    app.command(rich_help_panel="Queries")(status)


def status(
    placement: Annotated[Path, typer.Argument(help="A placement that `meander place -o FILE` wrote.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
) -> None:
    """Name what could not be placed, with the reason, and say where the rest runs."""
    found = _read(placement)
    waiting = [o for o in found["operators"] if o["node"] is None]
    nodes = Counter(o["node"] for o in found["operators"] if o["node"] is not None)
    if as_json:
        shown = {"queries": len(found["queries"]), "placed": nodes.total(), "nodes": dict(nodes), "waiting": waiting}
        typer.echo(json.dumps(shown, indent=2))
        return
    typer.echo(f"{len(found['queries'])} queries, {nodes.total()} operators placed on {len(nodes)} nodes")
    if not waiting:
        typer.echo("nothing waits")
        return
    typer.echo(f"{len(waiting)} operators wait for another try:")
    for operator in waiting[:SHOWN]:
        typer.echo(f"  {operator['operator']} {operator['does']}: {operator['waits_because']}")
    if len(waiting) > SHOWN:
        typer.echo(f"  and {len(waiting) - SHOWN} more; --json lists them all")


def _read(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text())
        complete = isinstance(found, dict) and {"queries", "operators"} <= found.keys()
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise InputError(f"cannot read the placement: {error}; write one with `meander place -o`", str(path)) from None
    if not complete:
        raise InputError("this is not a placement; write one with `meander place -o`", str(path))
    placement: dict[str, Any] = found
    return placement
