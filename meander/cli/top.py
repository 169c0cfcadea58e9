"""`meander top`: a live view of a running coordinator in the terminal."""

from __future__ import annotations

import time
from typing import Annotated, Any

import typer
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from meander.cli.client import HERE, Directory, Json, ServiceClient, Token, Url, connect, show
from meander.cli.queries import query_reasons, query_table
from meander.model.units import duration_ms

commands = typer.Typer()

SHOWN = 8


@commands.command()
def top(
    duration: Annotated[str | None, typer.Option("--for", help="Stop after a time such as 30s.")] = None,
    directory: Directory = HERE,
    url: Url = None,
    token: Token = None,
    as_json: Json = False,
) -> None:
    """Watch queries, throughput and reconfigurations; with --json, one object a second."""
    until = None if duration is None else time.monotonic() + duration_ms(duration) / 1000
    client = connect(directory, url, token)
    view = _View(client)
    if as_json:
        for kind, value in client.watch("metrics"):
            if kind == "metrics":
                show(value)
                if until is not None and time.monotonic() >= until:
                    return
    with Live(view.drawn(), console=Console(highlight=False), refresh_per_second=4) as live:
        try:
            for kind, value in client.watch("metrics,query,query_removed,reconfiguration,health"):
                view.take(kind, value)
                live.update(view.drawn())
                if until is not None and time.monotonic() >= until:
                    return
        except KeyboardInterrupt:
            return


class _View:
    """The state of the display, and its drawing."""

    def __init__(self, client: ServiceClient) -> None:
        self.client = client
        self.load()

    def load(self) -> None:
        self.queries: dict[str, Any] = {q["id"]: q for q in self.client.get("/queries")}
        self.changes: dict[int, Any] = {r["number"]: r for r in self.client.get("/reconfigurations", limit=SHOWN)}
        self.health: dict[str, Any] = self.client.get("/health")
        self.host: dict[str, Any] = {}

    def take(self, kind: str, value: Any) -> None:
        match kind:
            case "reset":
                self.load()
            case "metrics":
                self.host = value["host"]
                for name, now in value["queries"].items():
                    if name in self.queries:
                        self.queries[name] |= now
            case "query":
                self.queries[value["id"]] = value
            case "query_removed":
                self.queries.pop(value["id"], None)
            case "reconfiguration":
                self.changes[value["number"]] = value
                for number in sorted(self.changes)[:-SHOWN]:
                    del self.changes[number]
            case "health":
                self.health = value

    def drawn(self) -> Group:
        lines: list[Any] = [Text(self._head(), style="bold")]
        lines += [Text(f"problem: {p}", style="red") for p in self.health["problems"]]
        shown = list(self.queries.values())
        lines += [Text(""), query_table(shown)]
        known = "".join(self.health["problems"])  # what is wrong is said above
        lines += [Text(line, style="dim") for line in query_reasons(shown) if line.split(": ")[0] not in known]
        if self.changes:
            lines += [Text(""), self._changes()]
        return Group(*lines)

    def _head(self) -> str:
        host = self.host
        if not host:
            return f"{self.client.address}: {self.health['status']}"
        busy = max((s["busy"] for s in host["slots"]), default=0.0)
        return (
            f"{self.client.address}: {self.health['status']}  in {host['tuples_in_tps']:,.0f}/s  "
            f"out {host['tuples_out_tps']:,.0f}/s  waiting {host['pending']:,}  state {host['state_bytes']:,} bytes  "
            f"busy {busy:.0%}"
        )

    def _changes(self) -> Table:
        table = Table(box=None, pad_edge=False)
        for heading in ("change", "status", "fragments", "moves", "state bytes", "pause ms", "cause"):
            table.add_column(heading, overflow="ellipsis", no_wrap=True)
        for number in sorted(self.changes, reverse=True):
            r = self.changes[number]
            pause = "" if r["pause_ms"] is None else f"{r['pause_ms']:.0f}"
            row = (r["status"], r["fragments"], len(r["moves"]), r["state_bytes"], pause, r["cause"])
            table.add_row(str(number), *map(str, row))
        return table
