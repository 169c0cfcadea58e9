"""`meander place`: the nodes of operators, and the moves when the topology changes."""

from __future__ import annotations

import json
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from meander.cli.commands import DETOUR_HELP, MECHANISM_NAMES
from meander.lang.topology.writer import write_whole
from meander.local.placement_replay import (
    PlacingTotals,
    Setting,
    Words,
    batches_of,
    engine_of,
    placement_json,
    read_setting,
    replay,
    waiting,
)
from meander.model.placement import violations
from meander.place.amenders.concurrency_control import CONTROLS
from meander.place.engine import BatchReport, Engine
from meander.place.mechanisms import mechanism

commands = typer.Typer()

FAILURE = 1
EVERY = 20
"""Without a terminal, a line of progress after this many batches."""


@commands.command()
def place(
    topology: Annotated[
        Path,
        typer.Option("--topology", "-t", help="Topology file, or a folder of topology changes.", show_default=False),
    ],
    queries: Annotated[
        Path | None, typer.Option("--queries", "-q", help="A .sql or .py file, or a folder of them.")
    ] = None,
    mechanism_name: Annotated[str, typer.Option("--mechanism", "-m", help=", ".join(MECHANISM_NAMES))] = "bottom_up",
    events: Annotated[
        Path | None, typer.Option("--events", "-e", help="Events to replay (JSON lines), instead of the folder's.")
    ] = None,
    batch: Annotated[
        int | None, typer.Option("--batch", "-b", min=1, help="Events in a batch.", show_default="those of one time")
    ] = None,
    amenders: Annotated[int, typer.Option(min=1, help="Threads that place at the same time.")] = 1,
    control: Annotated[str, typer.Option(help=" or ".join(CONTROLS))] = "optimistic",
    seed: Annotated[int, typer.Option(help="For mechanisms that draw numbers.")] = 0,
    detour: Annotated[float | None, typer.Option(help=DETOUR_HELP, show_default="the topology's, or 1.5")] = None,
    explain: Annotated[bool, typer.Option("--explain", help="Say what moved, and why.")] = False,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write the placement here (JSON).")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
) -> None:
    """Place queries on a topology, replay its changes, and show the moves."""
    chosen = mechanism(mechanism_name)
    setting = read_setting(topology, queries, events)
    engine = engine_of(setting, chosen, amenders=amenders, control=control, seed=seed, detour=detour)
    story = _Story(engine, setting, batch, explain, as_json)
    try:
        with story.shown():
            totals = replay(engine, setting, batch, story.tell)
    finally:
        engine.close()
    if output is not None:
        write_whole(output, [json.dumps(placement_json(engine.catalog), indent=2, ensure_ascii=False), "\n"])
    if as_json:
        typer.echo(json.dumps(_summary(engine, totals) | {"moves": story.moves}, indent=2, ensure_ascii=False))
    else:
        _print(engine, setting, totals, output)
    faults = _faults(engine)
    if faults:
        typer.echo(f"error: the placement is not valid, which is a mistake of the program: {faults[0]}", err=True)
        raise typer.Exit(FAILURE)


class _Story:
    """Prints changes as they happen: progress, and with `--explain` every move."""

    def __init__(self, engine: Engine, setting: Setting, batch: int | None, explain: bool, as_json: bool) -> None:
        self.words = Words(engine.catalog)
        self.explain, self.as_json = explain, as_json
        self.count = sum(1 for _ in batches_of(setting.events, batch)) + bool(setting.queries)
        self.moves: list[dict[str, Any]] = []
        console = Console(stderr=True, highlight=False)
        self.progress: Progress | None = None
        if console.is_terminal and not explain:
            columns = TextColumn("replaying"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}")
            self.progress = Progress(*columns, console=console, transient=True)
            self.task = self.progress.add_task("", total=self.count)

    def shown(self) -> AbstractContextManager[object]:
        return self.progress or nullcontext()

    def tell(self, at_ms: int, report: BatchReport, totals: PlacingTotals) -> None:
        if self.explain or self.as_json:
            self._explain(at_ms, report)
        if self.progress is not None:
            self.progress.update(self.task, advance=1, description=f"{totals.moved:,} moved")
        elif not self.explain and totals.batches % EVERY == 0:
            typer.echo(f"batch {totals.batches:,} of {self.count:,}: {totals.moved:,} operators moved", err=True)

    def _explain(self, at_ms: int, report: BatchReport) -> None:
        lines = [(self.words.move(move, report.unplaced), move.cause) for move in report.moves]
        nodes, name = self.words.catalog.placement, self.words.catalog.topology.name
        for upstream, reader in report.rerouted:
            route = nodes.routes.get((upstream, reader))
            if route is not None:
                way = " - ".join(name(n) for n in route.nodes)
                cause = report.route_causes.get((upstream, reader), "a path broke")
                lines.append((f"{self.words.operator(reader)} now gets its input by {way}: {cause}", cause))
        for text, cause in lines:
            if self.as_json:
                self.moves.append({"at_ms": at_ms, "what": text, "cause": cause})
            else:
                typer.echo(f"{at_ms:>8} ms  {text}")


def _summary(engine: Engine, totals: PlacingTotals) -> dict[str, Any]:
    catalog = engine.catalog
    return {
        "mechanism": engine.mechanism.name,
        "queries": len(catalog.plan.queries),
        "shared_plans": len(catalog.plan.plans),
        "operators": len(catalog.plan.operators),
        "routes": len(catalog.placement.routes),
        **{key: round(value, 6) for key, value in asdict(totals).items()},
        "waiting": [{"operator": o, "reason": reason} for o, reason in waiting(catalog).items()],
        "valid": not _faults(engine),
    }


def _print(engine: Engine, setting: Setting, totals: PlacingTotals, output: Path | None) -> None:
    catalog, words = engine.catalog, Words(engine.catalog)
    plan = catalog.plan
    typer.echo(
        f"{len(plan.queries):,} queries in {len(plan.plans):,} shared plans, {len(plan.operators):,} operators on "
        f"{len(catalog.on_node):,} nodes, placed by {engine.mechanism.name}"
    )
    typer.echo(
        f"{totals.events:,} events in {totals.batches:,} batches: {totals.placed:,} operators placed, "
        f"{totals.moved:,} moved, {totals.removed:,} removed, {totals.rerouted:,} edges re-routed alone, "
        f"{totals.seconds * 1e6 / max(totals.events, 1):,.0f} us per event"
    )
    left = waiting(catalog)
    if left:
        typer.echo(f"waiting: {len(left):,} operators that could not be placed")
        for operator, reason in left.items():
            typer.echo(f"  {words.operator(operator)}: {reason}")
    for note in setting.notes:
        typer.echo(f"note: {note}")
    if output is not None:
        typer.echo(f"wrote {output}")


def _faults(engine: Engine) -> list[str]:
    """The faults besides operators that wait."""
    catalog = engine.catalog
    left = waiting(catalog)
    found = violations(catalog.plan, catalog.placement, catalog.topology)
    return [v.reason for v in found if v.operator not in left]
