"""`meander replay`: queries run on Spark while the topology under them changes in real time."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from meander.cli.commands import DETOUR_HELP
from meander.cli.folders import writable_folder
from meander.deploy.protocols import PROTOCOLS, protocol
from meander.local.placement_replay import read_setting
from meander.model.errors import InputError
from meander.model.resilience import check_detour
from meander.model.units import duration_ms
from meander.place.mechanisms import mechanism as find_mechanism

commands = typer.Typer()

FAILED = 1
EVERY_S = 5.0


@commands.command()
def replay(
    topology: Annotated[Path, typer.Option("--topology", "-t", help="Topology file, or a folder of topology changes.")],
    queries: Annotated[
        Path | None, typer.Option("--queries", "-q", help="A .sql or .py file, or a folder of them.")
    ] = None,
    events: Annotated[
        Path | None, typer.Option("--events", "-e", help="Events (JSON lines), instead of the folder's.")
    ] = None,
    speed: Annotated[float, typer.Option(min=0.01, help="How much faster than the events say.")] = 1.0,
    changes: Annotated[int | None, typer.Option(min=1, help="Stop after so many moments of change.")] = None,
    mechanism: Annotated[str, typer.Option(help="Placement mechanism.")] = "bottom_up",
    protocol_name: Annotated[str, typer.Option("--protocol", help=", ".join(p.name for p in PROTOCOLS))] = "isqd",
    strategy: Annotated[
        str | None,
        typer.Option(
            "--state",
            help="How state moves: migration_query, stop_and_copy, store_and_forward or replay; "
            "by default as the protocol does it.",
        ),
    ] = None,
    quiet: Annotated[str, typer.Option(help="Time before and after the changes, for comparison.")] = "5s",
    rate: Annotated[float, typer.Option(min=0.1, help="Tuples/s of producers without a source of their own.")] = 5.0,
    slots: Annotated[int, typer.Option(min=1, help="Slots: streaming queries that share the work.")] = 1,
    emulate: Annotated[bool, typer.Option("--emulate-latency", help="Delay tuples by their path's latency.")] = False,
    detour: Annotated[float | None, typer.Option(help=DETOUR_HELP, show_default="the topology's, or 1.5")] = None,
    adapt: Annotated[
        bool, typer.Option("--adapt", help="Switch a query's mechanism when its demands are not met.")
    ] = False,
    check: Annotated[bool, typer.Option(help="Compare all results with a batch run over the same input.")] = True,
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for results.")] = Path("results"),
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")] = False,
) -> None:
    """Run queries on Spark while topology changes come in by their time; show the time and the losses of each
    change."""
    find_mechanism(mechanism)
    protocol(protocol_name)
    if detour is not None:
        check_detour(detour)
    setting = read_setting(topology, queries, events)
    if not setting.events:
        raise InputError("there are no events to replay; give --events, or a folder of topology changes", str(topology))
    seconds = duration_ms(quiet) / 1000
    from meander.local.replay import replay_live
    from meander.local.replay_options import ReplayOptions, check_replay
    from meander.run.session import start_session

    options = ReplayOptions(
        mechanism,
        protocol_name,
        strategy,
        speed,
        changes,
        seconds,
        rate,
        slots,
        emulate,
        check,
        adapt=adapt,
        detour=detour,
    )
    check_replay(setting, writable_folder(output), options)
    say = _Sayer(quiet=as_json)
    for note in setting.notes:
        say.line(f"note: {note}")
    say.line(f"{len(setting.queries)} queries, {len(setting.events)} events; starting Spark")
    spark = start_session("meander")
    try:
        with tempfile.TemporaryDirectory(prefix="meander-") as work:
            report = replay_live(spark, setting, Path(work), output, options, say.progress)
    finally:
        spark.stop()
    summary = summary_of(report)
    if as_json:
        typer.echo(json.dumps(summary, indent=2))
    else:
        _print(summary)
    if summary["faults"]:
        typer.secho(f"error: the replay did not do what was asked: {'; '.join(summary['faults'])}", err=True)
        raise typer.Exit(FAILED)


class _Sayer:
    """Lines of progress on standard error."""

    def __init__(self, *, quiet: bool) -> None:
        self.quiet, self.next_s = quiet, 0.0

    def line(self, text: str) -> None:
        if not self.quiet:
            print(text, file=sys.stderr, flush=True)  # noqa: T201 - progress, beside the result

    def progress(self, phase: str, elapsed: float, status: Any) -> None:
        if elapsed >= self.next_s:
            self.next_s = elapsed + EVERY_S
            self.line(
                f"{elapsed:6.1f} s  {phase:<7} in {status.ingest.rows if status.ingest else 0:,}  "
                f"out {status.delivery.rows if status.delivery else 0:,}  waiting {status.pending_tuples:,}  "
                f"fragments {status.fragments}"
            )


def summary_of(report: Any) -> dict[str, Any]:
    """The report as plain values."""

    def spread(name: str) -> dict[str, float]:
        return {f"p{round(100 * q)}": round(report.quantile(name, q), 4) for q in (0.5, 0.95, 1.0)}

    latency = {
        phase: {"results": p.count, "p50_ms": p.p50_ms, "p95_ms": p.p95_ms, "p99_ms": p.p99_ms}
        for phase, p in report.latency.items()
    }
    return {
        "queries": report.queries,
        "sources": report.sources,
        "operators": report.operators,
        "fragments": report.fragments,
        "changes": len(report.changes),
        "unfinished": report.unfinished,
        "aborted": list(report.failures),
        "refused": list(report.refused),
        "waiting": list(report.waiting),
        "queue_delay_s": spread("queued_s"),
        "placement_s": spread("placement_s"),
        "contexts_s": spread("contexts_s"),
        "markers_s": spread("markers_s"),
        "state_s": spread("state_s"),
        "in_effect_s": spread("in_effect_s"),
        "fragments_touched": spread("fragments"),
        "state_bytes_moved": sum(c.state_bytes for c in report.changes),
        "latency": latency,
        "tuples_in": report.status.ingest.rows,
        "tuples_out": report.status.delivery.rows,
        "streaming_queries_restarted": not report.same_queries,
        "drained": report.drained,
        "problems": list(report.status.problems),
        "checked": report.unchecked is None,
        "unchecked_because": report.unchecked,
        "faults": list(report.faults),
        "lost": report.lost,
        "double": report.double,
        "notes": list(report.notes),
        "decisions": [
            f"{d.query}: {d.action.value} {d.mechanism}{' to ' + d.target if d.target else ''}: {d.reason}"
            for d in report.decisions
        ],
    }


def _print(summary: dict[str, Any]) -> None:
    def spread(name: str, factor: float = 1000, unit: str = "ms") -> str:
        values = [summary[name][p] * factor for p in ("p50", "p95", "p100")]
        return f"p50 {values[0]:,.0f}, p95 {values[1]:,.0f}, most {values[2]:,.0f} {unit}"

    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_row(
        "running",
        f"{summary['queries']} queries over {summary['sources']} sources, {summary['operators']} operators in "
        f"{summary['fragments']} fragments",
    )
    table.add_row("changes", f"{summary['changes']} in effect, {summary['unfinished']} not")
    table.add_row("queue delay", spread("queue_delay_s"))
    for name in ("placement", "contexts", "markers", "state"):
        table.add_row(f"  {name}", spread(f"{name}_s"))
    table.add_row("in effect after", spread("in_effect_s"))
    table.add_row("fragments touched", spread("fragments_touched", 1, "of " + str(summary["fragments"])))
    table.add_row("state moved", f"{summary['state_bytes_moved']:,} bytes")
    for phase, p in summary["latency"].items():
        text = f"p50 {p['p50_ms']:.0f}, p95 {p['p95_ms']:.0f} ms ({p['results']:,} results)"
        table.add_row(f"latency {phase}", text if p["results"] else "no results")
    table.add_row("tuples", f"{summary['tuples_in']:,} in, {summary['tuples_out']:,} out")
    if summary["checked"]:
        table.add_row("checked", f"lost {summary['lost']}, double {summary['double']} (against a batch run)")
    else:
        table.add_row("not checked", summary["unchecked_because"])
    if summary["streaming_queries_restarted"]:
        table.add_row("note", "slots were started over, so latency is not that of a quiet machine")
    for decision in summary["decisions"]:
        table.add_row("decided", decision)
    for problem in (*summary["problems"], *summary["refused"], *summary["aborted"], *summary["waiting"]):
        table.add_row("problem", problem)
    Console().print(table)
