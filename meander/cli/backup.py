"""`meander backup` and `meander restore`: all that a coordinator needs, saved while it runs, and put back."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from meander.cli.client import HERE, Directory, Json, Token, Url, connect, show
from meander.coordinator.directory.directory import CoordinatorDirectory, announced, held
from meander.model.errors import InputError

commands = typer.Typer()


@commands.command()
def backup(
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="The archive to make; by default one named after the time.")
    ] = None,
    directory: Directory = HERE,
    url: Url = None,
    token: Token = None,
    as_json: Json = False,
) -> None:
    """Save all that a coordinator needs to start again, while it runs on.

    The archive has settings, tokens, topology, ledger, the store of the coordinator's own host and its results, as they
    were at one moment. It has secrets: keep it as you keep the directory. Where no coordinator runs on the directory,
    the directory itself is read.
    """
    from meander.coordinator.backup.archive import extract
    from meander.coordinator.backup.capture import Backups

    path = out or Path(time.strftime("meander-%Y%m%d-%H%M%S.tar", time.gmtime()))
    if path.exists():
        raise InputError("this is there already; choose another name", str(path))
    home = CoordinatorDirectory(directory)
    if url is None:
        home.check()
        found = announced(home)
    with _whole(path) as partial:
        if url is None and (found is None or not found.runs):
            with held(home):
                _write(partial, Backups(home).stream())
        else:
            _write(partial, connect(directory, url, token).download("POST", "/backup"))
        with partial.open("rb") as written:
            manifest = extract(written, None)
    told = {"archive": str(path), "bytes": path.stat().st_size, "made_ms": manifest.made_ms, "epoch": manifest.epoch}
    if as_json:
        show({**told, "program": manifest.program, "sites": list(manifest.sites)})
    else:
        typer.echo(f"made {path} ({told['bytes']:,} bytes); it has tokens in it, so let nobody else read it")


@contextmanager
def _whole(path: Path) -> Iterator[Path]:
    """A file that has the name once all of it is there."""
    partial = path.with_name(f"{path.name}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        os.close(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600))
        yield partial
        partial.rename(path)
    except OSError as error:
        raise InputError(f"the backup cannot be written: {error.strerror}", str(path)) from None
    finally:
        partial.unlink(missing_ok=True)


def _write(path: Path, blocks: Iterator[bytes]) -> None:
    with path.open("r+b") as file:
        for block in blocks:
            file.write(block)
        file.flush()
        os.fsync(file.fileno())


@commands.command()
def restore(
    archive: Annotated[Path, typer.Argument(help="The archive, made by `meander backup`.", show_default=False)],
    directory: Directory = HERE,
    as_json: Json = False,
) -> None:
    """Make a coordinator's directory from a backup.

    The directory must be new or empty. The coordinator that starts there has an epoch greater than any before, so sites
    refuse the one that the backup is of from the moment on at which they have heard of it. Stop that one first.
    """
    from meander.coordinator.backup.restoring import restore as restored

    manifest = restored(archive, directory)
    made = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(manifest.made_ms / 1000))
    if as_json:
        told = {"directory": str(directory), "made_ms": manifest.made_ms, "program": manifest.program}
        show({**told, "epoch": manifest.epoch, "sites": list(manifest.sites)})
        return
    typer.echo(f"restored {directory}/ as it was at {made}")
    where = "" if directory == HERE else f" -d {directory}"
    typer.echo(f"next: make sure that the coordinator before does not run any more, then `meander up{where}`")
    if manifest.sites:
        typer.echo(
            f"sites that had joined: {', '.join(manifest.sites)}; `meander status{where}` says which of them run "
            "something else than the backup knows, and what to do"
        )
