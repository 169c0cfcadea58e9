"""`meander demo`: trains on a ring line, queries that follow them on Spark, and a page to watch and to meddle."""

from __future__ import annotations

import json
import math
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from meander.coordinator.security.private import keep_private
from meander.model.units import duration_ms

commands = typer.Typer()

if TYPE_CHECKING:
    from meander.demo.demo import DemoReport

FAILED = 1
EVER = "ever"


@commands.command()
def demo(
    duration: Annotated[
        str, typer.Option("--for", help="How long to run, such as 60s; `ever` runs until Ctrl-C.")
    ] = EVER,
    trains: Annotated[int, typer.Option(min=1, max=200, help="Trains on the ring.")] = 24,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port of the page; 0 takes any free one.")] = 8420,
    page: Annotated[bool, typer.Option("--page/--no-page", help="Print the address of the page.")] = True,
    incidents: Annotated[bool, typer.Option(help="Let nodes fail and links break now and then.")] = True,
    mechanism: Annotated[
        str, typer.Option(help="What places queries at first: by_demands, nova or a mechanism's name.")
    ] = "by_demands",
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")] = False,
) -> None:
    """Watch trains circle Berlin while queries follow them on Spark; nothing may be lost or double at the end."""
    keep_private()
    started = time.monotonic()
    seconds = None if duration == EVER else duration_ms(duration) / 1000
    from meander.demo.demo import Demo, DemoOptions  # Spark is imported only when it is needed

    def say(text: str) -> None:
        typer.echo(text, err=True)

    def shown(coordinator: Any) -> None:
        if page:
            say(f"\n  page  {coordinator.page}\n")
            say(f"  another terminal  export MEANDER_DIR={coordinator.home.directory}")
            say("                    meander top; meander submit ...; meander node remove base-5; meander doctor\n")
        say("running until Ctrl-C" if seconds is None else f"running for {duration}; `--for ever` keeps it running")

    say(f"{trains} trains on a ring of base stations; starting Spark")
    with tempfile.TemporaryDirectory(prefix="meander-demo-") as directory:
        options = DemoOptions(seconds, trains, port, incidents=incidents, mechanism=mechanism)
        report = Demo(Path(directory), options, say, started).run(shown)
    summary = summary_of(report)
    if as_json:
        typer.echo(json.dumps(summary, indent=2))
    else:
        print_summary(summary)
    if not report.sound:
        raise typer.Exit(FAILED)


def summary_of(report: DemoReport) -> dict[str, Any]:
    """The report as plain values."""

    def known(value: float) -> float | None:
        return None if math.isnan(value) else value

    return {
        "first_result_s": None if report.first_result_s is None else round(report.first_result_s, 1),
        "handovers": report.handovers,
        "incidents": report.incidents,
        **report.summary,
        "refused": report.refused,
        "latency": {
            phase: {"results": p.count, "p50_ms": known(p.p50_ms), "p95_ms": known(p.p95_ms), "p99_ms": known(p.p99_ms)}
            for phase, p in report.latency.items()
        },
        "emulated_links_ms": {
            phase: {"least": min(delays), "most": max(delays)} for phase, delays in report.links_ms.items() if delays
        },
        "drained": report.drained,
        "checked": report.unchecked is None,
        "unchecked_because": report.unchecked,
        "lost": report.lost,
        "double": report.double,
        "examples": {name: c.example for name, c in report.checks.items() if c.example},
    }


def print_summary(summary: dict[str, Any]) -> None:
    """The summary for people."""
    table = Table(show_header=False, box=None, pad_edge=False)
    first = summary["first_result_s"]
    table.add_row("first result", "none" if first is None else f"after {first:g} s")
    table.add_row(
        "changes",
        f"{summary['changes']} handled: {summary['handovers']} trains changed base stations, "
        f"{len(summary['incidents'])} incidents",
    )
    table.add_row(
        "moved",
        f"{summary['moves']} operators, {summary['fragments_moved']} fragments in {summary['reconfigurations']} "
        f"reconfigurations ({summary['aborted']} aborted), {summary['state_bytes']:,} bytes of state",
    )
    for phase in ("before", "during"):
        p = summary["latency"].get(phase)
        if p is not None and p["results"]:
            text = f"p50 {p['p50_ms']:.0f}, p95 {p['p95_ms']:.0f}, p99 {p['p99_ms']:.0f} ms ({p['results']:,} results)"
            table.add_row(f"latency {phase} changes", text)
            links = summary["emulated_links_ms"].get(phase)
            if links is not None:
                taken = f"{links['least']} to {links['most']} ms, by query" if links["most"] else "none"
                table.add_row("  of it, emulated links", taken)
    table.add_row("tuples", f"{summary['tuples_in']:,} in, {summary['tuples_out']:,} out")
    for name, rows in summary["results"].items():
        table.add_row(f"  {name}", f"{rows:,} results")
    if summary["checked"]:
        table.add_row("checked", f"lost {summary['lost']}, double {summary['double']} (against a batch run)")
    else:
        table.add_row("not checked", summary["unchecked_because"])
    if not summary["drained"]:
        table.add_row("problem", "not everything that was taken in came out in time")
    for problem in (*summary["problems"], *summary["refused"], *summary["examples"].values()):
        table.add_row("problem", problem)
    Console().print(table)
