"""`meander certificates`: an authority of one's own, and certificates for a coordinator and its sites."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from meander.cli.client import Json, show

commands = typer.Typer()


@commands.command()
def certificates(
    names: Annotated[
        list[str],
        typer.Argument(help="Host names of coordinator and sites, as others reach them.", show_default=False),
    ],
    directory: Annotated[Path, typer.Option("--out", "-o", help="Where to write them, beside the authority.")] = Path(
        "certificates"
    ),
    hosts: Annotated[
        list[str] | None, typer.Option("--host", help="A further name or address that they are good for; repeatable.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Make certificates for TLS. The first time, an authority is made too: ca.pem goes everywhere, ca.key nowhere."""
    from meander.coordinator.security.certificates import make  # its imports take a moment to load

    made = make(directory, names, hosts or ())
    if as_json:
        shown = [{"certificate": str(f.certificate), "key": str(f.key)} for f in made]
        show({"ca": str(directory / "ca.pem"), "certificates": shown})
        return
    for files in made:
        typer.echo(f"made {files.certificate} and {files.key}")
    ca = directory / "ca.pem"
    typer.echo(f"coordinator: `meander up --certificate {made[0].certificate} --key {made[0].key}`")
    typer.echo(f"sites and commands trust it with `--ca {ca}` (or MEANDER_CA={ca})")
