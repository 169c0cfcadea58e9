"""`meander join-matrix`: which producers join in a running query that Nova places."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from meander.cli.client import HERE, Directory, Json, QueryName, Token, Url, at, connect, show
from meander.model.errors import InputError
from meander.model.text_files import read_text

group = typer.Typer(no_args_is_help=True, help="Which producers join in a running query that Nova places.")


@group.command("show")
def show_(
    query: QueryName, directory: Directory = HERE, url: Url = None, token: Token = None, as_json: Json = False
) -> None:
    """Show the pairs of producers that join."""
    found = connect(directory, url, token).get(at(query, "join-matrix"))
    if as_json:
        show(found)
        return
    for join in found["joins"]:
        sides = [f"{join[s]['stream']} at {', '.join(join[s]['nodes'])}" for s in ("left", "right")]
        typer.echo(f"{join['join']}: {sides[0]} with {sides[1]}")
    for pair in found["pairs"]:
        typer.echo(f"{pair['left']}:{pair['right']}{'' if pair['has_room'] else '  (no node has room for it)'}")


@group.command("set")
def set_(
    query: QueryName,
    pairs: Annotated[
        list[str] | None, typer.Argument(help="Pairs of producers such as s0:s2, all of them.", show_default=False)
    ] = None,
    file: Annotated[Path | None, typer.Option("--file", "-f", help="A file with a pair in each line.")] = None,
    every: Annotated[bool, typer.Option("--all", help="Every producer joins every other one.")] = False,
    directory: Directory = HERE,
    url: Url = None,
    token: Token = None,
    as_json: Json = False,
) -> None:
    """Let these producers join from now on, and no others; what runs is cut anew, exactly once."""
    client = connect(directory, url, token)
    if (bool(pairs) + (file is not None) + every) != 1:
        raise InputError("give pairs such as s0:s2, or --file, or --all")
    if every:
        known = client.get(at(query, "join-matrix"))
        wanted = [[a, b] for j in known["joins"] for a in j["left"]["nodes"] for b in j["right"]["nodes"]]
    else:
        lines = read_text(file).split() if file is not None else pairs or []
        wanted = [_pair(line) for line in lines]
    found = client.send("PUT", at(query, "join-matrix"), {"pairs": wanted})
    if as_json:
        show(found)
    else:
        typer.echo(f"{len(wanted)} pairs join; {len(found['moves'])} operators come, go or move")


def _pair(text: str) -> list[str]:
    left, colon, right = text.partition(":")
    if not (left and colon and right):
        raise InputError(f"{text!r} is no pair; write the left and the right producer's node as s0:s2")
    return [left, right]
