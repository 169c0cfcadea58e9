"""`meander bench`: run an experiment and say whether its targets hold."""

from __future__ import annotations

import json
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from lab.bench import BENCHES, bench
from lab.bench.report import Figure, Report
from lab.testbed.signals import in_order

commands = typer.Typer()

MISSED = 1


@commands.command("bench")
def run(
    name: Annotated[str, typer.Argument(help="; ".join(f"{b.name}: {b.about}" for b in BENCHES), show_default=False)],
    quick: Annotated[bool, typer.Option("--quick", help="Fewer repeats, within a minute.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Run an experiment. Ends with exit code 1 when a target does not hold."""
    chosen = bench(name)
    console = Console(stderr=True, highlight=False)
    with in_order():
        if console.is_terminal:
            with console.status("starting") as status:
                report = chosen.run(quick, status.update)
        else:
            report = chosen.run(quick, lambda text: typer.echo(text, err=True))
    if as_json:
        typer.echo(json.dumps(report.as_json(), indent=2))
    else:
        _print(report)
    if not report.holds:
        raise typer.Exit(MISSED)


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
