"""`meander bench`: run an experiment and say whether its targets hold."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from lab.bench import BENCHES, Bench, bench
from lab.bench.report import Figure, Report
from lab.testbed.signals import in_order
from meander.model.errors import InputError
from meander.model.units import duration_ms

commands = typer.Typer()

MISSED = 1


@commands.command("bench")
def run(
    name: Annotated[str, typer.Argument(help="; ".join(f"{b.name}: {b.about}" for b in BENCHES), show_default=False)],
    quick: Annotated[bool, typer.Option("--quick", help="Fewer repeats, within a minute.")] = False,
    duration: Annotated[
        str | None, typer.Option("--for", help="How long, such as 2h, of those that can last: soak.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Run an experiment. Ends with exit code 1 when a target does not hold."""
    chosen = bench(name)
    seconds = None if duration is None else duration_ms(duration) / 1000
    if seconds is not None and chosen.run_for is None:
        able = ", ".join(b.name for b in BENCHES if b.run_for is not None)
        raise InputError(f"bench {name!r} takes as long as it takes; --for is for {able}")
    console = Console(stderr=True, highlight=False)
    with in_order():
        if console.is_terminal:
            with console.status("starting") as status:
                report = _run(chosen, quick, status.update, seconds)
        else:
            report = _run(chosen, quick, lambda text: typer.echo(text, err=True), seconds)
    if as_json:
        typer.echo(json.dumps(report.as_json(), indent=2))
    else:
        _print(report)
    if not report.holds:
        raise typer.Exit(MISSED)


def _run(chosen: Bench, quick: bool, progress: Callable[[str], None], seconds: float | None) -> Report:
    if chosen.run_for is not None:
        return chosen.run_for(quick, progress, seconds)
    return chosen.run(quick, progress)


def _print(report: Report) -> None:
    console = Console(highlight=False)
    console.print(f"{report.bench}: {report.data}\n")
    table = Table(box=None, pad_edge=False)
    for heading in ("", "median", "spread", "goal", "holds"):
        table.add_column(heading, justify="left" if heading in ("", "holds") else "right", no_wrap=True)
    for figure in report.figures:
        table.add_row(*_cells(figure))
    console.print(table)
    console.print()
    for note in (f"up to {report.repeats} repeats", *report.notes):
        console.print(f"- {note}")


def _cells(figure: Figure) -> tuple[str, ...]:
    median, low, high = (_short(v) for v in (figure.measured, min(figure.values), max(figure.values)))
    holds = "" if figure.goal is None else "yes" if figure.holds else "NO"
    return figure.name, f"{median} {figure.unit}", f"{low} to {high}", figure.wanted, holds


def _short(value: float) -> str:
    """Three digits that count; whole numbers from a hundred on."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
