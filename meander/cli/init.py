"""`meander init`: a directory for a coordinator."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from meander.cli.client import HERE, Json, show

commands = typer.Typer()


@commands.command()
def init(
    directory: Annotated[Path, typer.Argument(help="Where to make it.")] = HERE,
    topology: Annotated[Path, typer.Option("--topology", "-t", help="Topology file with streams and sinks.")] = Path(
        "topology.yaml"
    ),
    as_json: Json = False,
) -> None:
    """Make a directory for a coordinator: settings, tokens, and the topology it begins with."""
    from meander.coordinator.directory.creation import create

    home = create(directory, topology)
    if as_json:
        show({"directory": str(directory), "settings": str(home.settings), "tokens": str(home.tokens)})
        return
    typer.echo(f"made {directory}/ with settings ({home.settings.name})")
    where = "" if directory == HERE else f" -d {directory}"
    typer.echo(f"next: `meander up{where}`, then `meander submit{where} query.sql`")
