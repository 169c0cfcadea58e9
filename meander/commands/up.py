"""`meander up`: runs the coordinator of a directory until it is told to stop."""

from __future__ import annotations

import json
import signal
import threading
from pathlib import Path
from typing import Annotated, Any

import typer

from meander.commands.client import HERE, Directory
from meander.model.units import duration_ms
from meander.serve.home import Home, create, read_settings
from meander.serve.logs import start_logging

PANEL = "Coordinator"


def register(app: typer.Typer) -> None:
    app.command(rich_help_panel=PANEL)(up)


def up(
    directory: Directory = HERE,
    topology: Annotated[
        Path | None, typer.Option("--topology", "-t", help="Make the directory with this topology if it is new.")
    ] = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on, instead of 127.0.0.1.")] = None,
    port: Annotated[int | None, typer.Option(min=0, max=65535, help="Port; 0 for any that is free.")] = None,
    slots: Annotated[int | None, typer.Option(min=1, help="Streaming queries that share the work.")] = None,
    duration: Annotated[str | None, typer.Option("--for", help="Stop after a time such as 5min.")] = None,
    log_json: Annotated[bool, typer.Option("--log-json", help="Log as JSON lines.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Log more.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print addresses and, at the end, a summary as JSON.")
    ] = False,
) -> None:
    """Run the coordinator: it takes up what ran before, serves its API and page, and stops at Ctrl-C."""
    seconds = None if duration is None else duration_ms(duration) / 1000
    home = Home(directory)
    if not home.exists and topology is not None:
        create(directory, topology)
    home.check()
    start_logging(as_json=log_json, verbose=verbose)
    given = {"host": host, "port": port, "slots": slots}
    from meander.serve.coordinator import running  # Spark is imported only when it is needed

    ended = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ended.set())
    if not as_json:
        typer.echo("starting Spark ...", err=True)
    with running(
        directory, None, _options(read_settings(home) | {k: v for k, v in given.items() if v is not None})
    ) as c:
        if as_json:
            typer.echo(json.dumps({"address": c.address, "page": c.page}))
        else:
            typer.echo(f"running at {c.address} (directory {directory}/); Ctrl-C stops it")
            typer.echo(f"page: {c.page}")
        ended.wait(seconds)
        summary = c.summary()
    if as_json:
        typer.echo(json.dumps(summary, indent=2))
    else:
        typer.echo(
            f"stopped after {summary['uptime_s']:.0f} s: {summary['events']:,} events, "
            f"{summary['reconfigurations']:,} reconfigurations, {summary['tuples_out']:,} results"
        )


def _options(settings: dict[str, Any]) -> Any:
    from meander.serve.coordinator import Options

    found = dict(settings)
    found["emulate"] = found.pop("emulate_latency", False)
    return Options(**found)
