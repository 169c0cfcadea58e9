"""`meander run`: places queries and runs them on Spark, here and now, with a check at the end."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.live import Live
from rich.table import Table

from meander.cli.folders import writable_folder
from meander.lang.query_files import load_queries
from meander.lang.topology.reader import TopologyFile, load
from meander.model.errors import InputError
from meander.model.plan import Query
from meander.model.units import duration_ms

commands = typer.Typer()

FAILED = 1


@commands.command()
def run(
    topology: Annotated[Path, typer.Option("--topology", "-t", help="Topology file with streams and sinks.")],
    query: Annotated[list[Path], typer.Option("--query", "-q", help="A .sql or .py file; may be given several times.")],
    duration: Annotated[str, typer.Option("--for", help="How long to run, such as 30s or 5min.")] = "30s",
    mechanism: Annotated[str, typer.Option(help="Placement mechanism; for joins also nova.")] = "bottom_up",
    slots: Annotated[int, typer.Option(min=1, help="Slots: streaming queries that share the work.")] = 1,
    rebinding: Annotated[
        str, typer.Option(help="How fragments change slots: steady, greedy, single_queue, static or off.")
    ] = "steady",
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for results.")] = Path("results"),
    late: Annotated[Path | None, typer.Option("--late", help="Folder for tuples that came too late.")] = None,
    emulate: Annotated[bool, typer.Option("--emulate-latency", help="Delay tuples by their path's latency.")] = False,
    check: Annotated[bool, typer.Option(help="Compare all results with a batch run over the same input.")] = True,
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")] = False,
) -> None:
    """Place queries on a topology and run them on Spark; ends with a check that nothing is lost or double."""
    seconds = duration_ms(duration) / 1000
    world, queries = _read(topology, query)
    from meander.local.embedded import run_embedded
    from meander.local.run_plan import check_plan, plan_queries
    from meander.run.rebinding.options import rebinding_by
    from meander.run.reporting.status_file import announce
    from meander.run.session import start_session

    moving = rebinding_by(rebinding, slots)
    plan = plan_queries(world, queries, mechanism, slots=slots, emulate=emulate, late=late)
    check_plan(plan, writable_folder(output))
    if late is not None:
        writable_folder(late)
    say = _sayer(as_json)
    fragments, nodes = len(plan.deployment.fragments), {f.node for f in plan.deployment.fragments.values()}
    say(f"{len(queries)} queries placed as {fragments} fragments on {len(nodes)} nodes; starting Spark")
    announce(output)
    spark = start_session("meander")
    try:
        with tempfile.TemporaryDirectory(prefix="meander-") as work, _Progress(seconds, quiet=as_json) as progress:
            report = run_embedded(
                spark,
                plan,
                Path(work),
                output,
                seconds=seconds,
                slots=slots,
                rebinding=moving,
                check=check,
                progress=progress.show,
            )
    finally:
        spark.stop()
    summary = _summary(report, output)
    if as_json:
        typer.echo(json.dumps(summary, indent=2))
    else:
        _print(summary)
    if summary["faults"]:
        typer.secho(f"error: the run did not do what was asked: {'; '.join(summary['faults'])}", err=True)
        raise typer.Exit(FAILED)


def _read(topology: Path, files: list[Path]) -> tuple[TopologyFile, list[Query]]:
    world = load(topology)
    queries: list[Query] = []
    for file in files:
        script = load_queries(file, world.streams, world.sinks)
        world.streams.update(script.streams)
        world.sinks.update(script.sinks)
        queries.extend(script.queries)
    if not queries:
        raise InputError("there is no query to run; add a SELECT ... INTO to one of the files", str(files[0]))
    return world, queries


def _sayer(quiet: bool) -> Callable[[str], None]:
    return lambda text: typer.echo(text, err=quiet)


class _Progress:
    """A live line on a terminal, plain lines every few seconds elsewhere."""

    def __init__(self, seconds: float, *, quiet: bool) -> None:
        self.seconds, self.quiet = seconds, quiet
        self.console = Console(stderr=True)
        self.live = Live("", console=self.console, refresh_per_second=4) if self.console.is_terminal else None
        self.next_line = 0.0

    def __enter__(self) -> _Progress:
        if self.live:
            self.live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.live:
            self.live.stop()

    def show(self, elapsed: float, status: Any) -> None:
        latency = [p.p50_ms for p in status.delivery.latency.values() if p.count] if status.delivery else []
        text = (
            f"{elapsed:5.1f} of {self.seconds:g} s   in {status.ingest.rows if status.ingest else 0:,}   "
            f"out {status.delivery.rows if status.delivery else 0:,}   steps {status.totals.steps}   "
            f"waiting {status.pending_tuples:,}   latency p50 {max(latency):.0f} ms"
            if latency
            else f"{elapsed:5.1f} of {self.seconds:g} s   waiting for the first results"
        )
        if self.live:
            self.live.update(text)
        elif elapsed >= self.next_line and not self.quiet:
            print(text, file=sys.stderr, flush=True)  # noqa: T201 - progress where there is no terminal
            self.next_line = elapsed + 5


def _summary(report: Any, output: Path) -> dict[str, Any]:
    status = report.status
    latency = {
        name: {"results": p.count, "p50_ms": p.p50_ms, "p95_ms": p.p95_ms, "p99_ms": p.p99_ms}
        for name, p in status.delivery.latency.items()
    }
    rows_in = status.ingest.rows
    return {
        "seconds": round(report.seconds, 1),
        "drained": report.drained,
        "healthy": status.healthy,
        "problems": list(status.problems),
        "tuples_in": rows_in,
        "tuples_out": sum(report.results.values()),
        "throughput_tps": round(rows_in / report.seconds, 1),
        "latency": latency,
        "steps": status.totals.steps,
        "step_ms": round(1000 * status.totals.seconds / max(1, status.totals.steps), 1),
        "rounds": status.totals.rounds,
        "late_tuples": status.totals.late,
        "malformed": status.ingest.malformed,
        "state_bytes": status.state_bytes,
        "results": report.results,
        "output": str(output),
        "checked": report.unchecked is None,
        "unchecked_because": report.unchecked,
        "faults": list(report.faults),
        "lost": sum(c.lost for c in report.checks.values()),
        "double": sum(c.double for c in report.checks.values()),
        "differences": {name: c.example for name, c in report.checks.items() if c.example},
    }


def _print(summary: dict[str, Any]) -> None:
    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_row("tuples", f"{summary['tuples_in']:,} in, {summary['tuples_out']:,} out")
    table.add_row("throughput", f"{summary['throughput_tps']:,} tuples/s over {summary['seconds']} s")
    for name, p in summary["latency"].items():
        quantiles = (
            f"p50 {p['p50_ms']:.0f}, p95 {p['p95_ms']:.0f}, p99 {p['p99_ms']:.0f} ms" if p["results"] else "no results"
        )
        table.add_row(f"latency of {name}", f"{quantiles} ({p['results']:,} results)")
    table.add_row("steps", f"{summary['steps']}, {summary['step_ms']} ms each, {summary['rounds']} rounds on Spark")
    table.add_row(
        "state", f"{summary['state_bytes']:,} bytes; late {summary['late_tuples']}, malformed {summary['malformed']}"
    )
    table.add_row("results", f"in {summary['output']}/")
    if summary["checked"]:
        table.add_row(
            "checked", f"lost {summary['lost']}, double {summary['double']} (against a batch run of the same input)"
        )
    else:
        table.add_row("not checked", summary["unchecked_because"])
    for problem in summary["problems"]:
        table.add_row("problem", problem)
    Console().print(table)
