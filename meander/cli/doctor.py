"""`meander doctor`: compares the running fragments with the catalog."""

from __future__ import annotations

import typer

from meander.cli.client import HERE, Directory, Json, Token, Url, connect, show

commands = typer.Typer()

NOT_THE_SAME = 1


@commands.command()
def doctor(directory: Directory = HERE, url: Url = None, token: Token = None, as_json: Json = False) -> None:
    """Compare the running fragments, here and at all sites, with the catalog.

    Ends with exit code 1 when something differs, or when a site could not be asked.
    """
    found = connect(directory, url, token).get("/doctor")
    if as_json:
        show(found)
    else:
        looked = f"{found['operators']:,} operators, {found['fragments']:,} fragments, {found['channels']:,} channels"
        on_their_way = f"; {found['under_way']} changes on their way were left out" if found["under_way"] else ""
        for site, reason in found["unasked"].items():
            typer.echo(f"site {site} could not be asked: {reason}")
        for each in found["differences"]:
            typer.echo(f"{each['where']}: {each['what']}")
        count = len(found["differences"])
        verdict = f"{count} {'difference' if count == 1 else 'differences'}" if count else "no difference"
        so_far = ", as far as sites could be asked" if found["unasked"] else ""
        typer.echo(f"{verdict} between what runs and the catalog{so_far}: {looked}{on_their_way}")
    if found["differences"] or found["unasked"]:
        raise typer.Exit(NOT_THE_SAME)
