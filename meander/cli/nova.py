"""`meander nova`: place joins over many nodes, keep them placed while things change, and compare with other ways."""

from __future__ import annotations

import json
import time
from dataclasses import asdict, replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from meander.cli.laboratory import laboratory
from meander.lang.topology.writer import write_whole
from meander.local.join_files import JoinWorld, Wanted, problem_from, read_latency, read_topology
from meander.model.errors import InputError

group = typer.Typer(no_args_is_help=True, help="Place, split and move joins over very many nodes.")


class LatencyModel(StrEnum):
    """The latencies that count."""

    MEASURED = "measured"
    ESTIMATED = "estimated"


class TooLittleRoom(StrEnum):
    """The treatment of parts of joins that fit nowhere."""

    REFUSE = "refuse"
    SPREAD = "spread"
    EXPAND = "expand"


LatencyFile = Annotated[Path | None, typer.Option("--latency", "-l", help="Round-trip times (.npz or .csv).")]
TopologyPath = Annotated[Path | None, typer.Option("--topology", "-t", help="Topology file instead.")]
JoinTable = Annotated[Path | None, typer.Option("--joins", help="CSV: left, right, left_tps, right_tps[, sink].")]
Sink = Annotated[str | None, typer.Option(help="Node that gets the results.", show_default="the first node")]
By = Annotated[LatencyModel, typer.Option(help="Latencies to place and judge by.")]
Level = Annotated[int, typer.Option(min=0, max=10, help="Heterogeneity of drawn capacities.")]
Seed = Annotated[int, typer.Option(help="For what is drawn.")]
Unlimited = Annotated[bool, typer.Option("--unlimited", help="As if every node could take in everything.")]
Sigma = Annotated[float | None, typer.Option(min=0, max=1, help="How finely to split; 0 is finest.")]
Bandwidth = Annotated[float, typer.Option(help="Most tuples/s into one replica; also decides sigma.")]
LeastFree = Annotated[float, typer.Option(help="Nodes with less free take nothing more.")]
Room = Annotated[TooLittleRoom, typer.Option("--overload", help="When a part fits nowhere.")]
Improve = Annotated[float, typer.Option("--improve", min=0, help="Seconds of local improvement.")]
Probe = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Place by coordinates, but measure (look up) the latencies of so many candidates per join.",
        show_default=False,
    ),
]
Repair = Annotated[bool, typer.Option("--repair", help="Correct bad input and say what was corrected.")]
Plot = Annotated[Path | None, typer.Option("--plot", help="Draw the cost space here (.svg or .png).")]
Output = Annotated[Path | None, typer.Option("--output", "-o", help="Write all replicas here (JSON).")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]

WARM_UP = 70
"""Events on a copy before any is timed, so that compiled code is loaded."""


@group.command()
def place(
    latency: LatencyFile = None,
    topology: TopologyPath = None,
    joins: JoinTable = None,
    sink: Sink = None,
    by: By = LatencyModel.MEASURED,
    level: Level = 10,
    seed: Seed = 0,
    unlimited: Unlimited = False,
    sigma: Sigma = None,
    bandwidth: Bandwidth = float("inf"),
    least_free: LeastFree = 0.0,
    overload: Room = TooLittleRoom.EXPAND,
    tuple_bytes: Annotated[
        float, typer.Option(min=0, help="Size of a tuple, for the bandwidth of a topology's links.")
    ] = 100.0,
    improve: Improve = 1.0,
    probe: Probe = None,
    repair: Repair = False,
    plot: Plot = None,
    output: Output = None,
    as_json: Json = False,
) -> None:
    """Place joins: the node of each part, the latencies of tuples, and the load of nodes."""
    from meander.place.nova import judge as judging
    from meander.place.nova.improvement.bandwidth import respect_links
    from meander.place.nova.place import place as place_joins

    wanted = Wanted(joins, sink, level, seed, unlimited, least_free, bandwidth, by is LatencyModel.MEASURED, repair)
    world = _world(latency, topology, repair)
    problem, notes = problem_from(world, wanted)
    start = time.perf_counter()
    probed = None if probe is None else _probed(problem, probe)
    placed = place_joins(problem if probed is None else probed.problem, _settings(sigma, bandwidth, overload, improve))
    relief = None if world.topology is None else respect_links(placed, world.topology, tuple_bytes)
    seconds = time.perf_counter() - start
    verdict = judging.judge(placed, problem)
    if output is not None:
        write_whole(output, [json.dumps(_replicas(placed, world), indent=1), "\n"])
    if plot is not None:
        _draw(placed, plot, f"{problem.joins} joins over {problem.nodes} nodes")
    shown = asdict(verdict) | {
        "p90_delta_ms": verdict.p90_delta_ms,
        "mean_delta_ms": verdict.mean_delta_ms,
        "joins": problem.joins,
        "nodes": problem.nodes,
        "seconds": seconds,
    }
    if probed is not None:
        shown |= {"measured_pairs": probed.measured, "all_pairs": probed.pairs}
    overloaded = [world.names[n] for n in placed.overloaded()]
    if as_json:
        links = None if relief is None else asdict(relief)
        notes = [*world.notes, *notes]
        typer.echo(json.dumps(shown | {"overloaded_nodes": overloaded, "links": links, "repaired": notes}, indent=2))
        return
    for note in (*world.notes, *notes):
        typer.echo(f"repaired: {note}")
    table = _table("", "")
    for name, value in (
        ("joins", f"{problem.joins:,} in {verdict.replicas:,} replicas on {verdict.used:,} of {problem.nodes:,} nodes"),
        ("90th percentile", f"{verdict.p90_ms:.2f} ms, {verdict.p90_delta_ms:+.2f} over direct transmission"),
        ("mean", f"{verdict.mean_ms:.2f} ms, {verdict.mean_delta_ms:+.2f} over direct transmission"),
        (
            "traffic",
            f"{verdict.traffic_tps:,.0f} tuples/s, {verdict.traffic_tps / problem.demand_tps.sum():.2f} x unsplit",
        ),
        ("overloaded", f"{len(overloaded)} nodes{': ' + ', '.join(overloaded[:5]) if overloaded else ''}"),
        ("without room", f"{verdict.unplaced} joins"),
        *((("links", _links(relief)),) if relief is not None else ()),
        *((("measured", f"{probed.measured:,} of {probed.pairs:,} pairs of nodes"),) if probed is not None else ()),
        ("time", f"{seconds:.2f} s"),
    ):
        table.add_row(name, value)
    Console(highlight=False).print(table)


@group.command()
def compare(
    latency: LatencyFile = None,
    topology: TopologyPath = None,
    joins: JoinTable = None,
    sink: Sink = None,
    by: By = LatencyModel.MEASURED,
    level: Level = 10,
    seed: Seed = 0,
    unlimited: Unlimited = False,
    improve: Improve = 1.0,
    repair: Repair = False,
    as_json: Json = False,
) -> None:
    """Place the same joins by Nova and by every baseline, and judge all alike."""
    from meander.place.nova.baselines import BASELINES
    from meander.place.nova.baselines.base import judge_outcome
    from meander.place.nova.judge import judge
    from meander.place.nova.place import place as place_joins
    from meander.place.nova.settings import NovaSettings

    wanted = Wanted(joins, sink, level, seed, unlimited, measured=by is LatencyModel.MEASURED, repair=repair)
    problem, _ = problem_from(_world(latency, topology, repair), wanted)
    found: list[dict[str, Any]] = []
    for name in ("nova", "unimproved", *BASELINES):
        start = time.perf_counter()
        if name in BASELINES:
            verdict = judge_outcome(BASELINES[name](problem), problem)
        else:
            verdict = judge(place_joins(problem, NovaSettings(improve_s=improve if name == "nova" else 0.0)))
        found.append(
            {"mechanism": name, "p90_delta_ms": verdict.p90_delta_ms, "mean_delta_ms": verdict.mean_delta_ms,
             "overloaded": verdict.overloaded, "nodes": verdict.used, "replicas": verdict.replicas,
             "unplaced": verdict.unplaced, "seconds": time.perf_counter() - start}
        )  # fmt: skip
    if as_json:
        typer.echo(json.dumps(found, indent=2))
        return
    table = _table("", "p90", "mean", "overload", "nodes", "replicas", "refused", "time")
    for row in found:
        table.add_row(
            row["mechanism"], f"{row['p90_delta_ms']:.2f} ms", f"{row['mean_delta_ms']:.2f} ms",
            f"{row['overloaded']:.0%}", str(row["nodes"]), str(row["replicas"]), str(row["unplaced"]),
            f"{row['seconds']:.2f} s",
        )  # fmt: skip
    console = Console(highlight=False)
    console.print(
        f"{problem.joins:,} joins over {problem.nodes:,} nodes, {by.value} latencies; delta over sending directly"
    )
    console.print(table)


@group.command()
def reoptimise(
    latency: LatencyFile = None,
    topology: TopologyPath = None,
    joins: JoinTable = None,
    sink: Sink = None,
    level: Level = 10,
    seed: Seed = 0,
    events: Annotated[int, typer.Option("--events", "-e", min=1, help="How many random events.")] = 700,
    repair: Repair = False,
    plot: Plot = None,
    as_json: Json = False,
) -> None:
    """Place joins by coordinates, apply random changes, and show the cost of each and the quality of the result."""
    from meander.local.join_events import replay
    from meander.place.nova.judge import judge
    from meander.place.nova.place import place as place_joins
    from meander.place.nova.running.current_problem import problem_of

    wanted = Wanted(joins, sink, level, seed, measured=False, repair=repair)
    problem, _ = problem_from(_world(latency, topology, repair), wanted)
    replay(place_joins(problem), WARM_UP)
    placed = place_joins(problem)
    took = replay(placed, events, seed)
    now, fresh = judge(placed), judge(place_joins(problem_of(placed)))
    rows = {
        name: {
            "events": len(times),
            "median_ms": float(np.median([w for _, w in times])) if times else 0.0,
            "p99_ms": float(np.percentile([w for _, w in times], 99)) if times else 0.0,
        }
        for name, times in took.items()
    }
    if plot is not None:
        _draw(placed, plot, f"after {events} events")
    quality = {
        "mean_ms": now.mean_ms,
        "fresh_mean_ms": fresh.mean_ms,
        "p90_ms": now.p90_ms,
        "fresh_p90_ms": fresh.p90_ms,
        "overloaded": now.overloaded,
        "unplaced": now.unplaced,
    }
    if as_json:
        typer.echo(json.dumps({"events": rows, "quality": quality}, indent=2))
        return
    table = _table("", "events", "median", "p99")
    for name, row in rows.items():
        table.add_row(name, str(row["events"]), f"{row['median_ms']:.3f} ms", f"{row['p99_ms']:.3f} ms")
    console = Console(highlight=False)
    console.print(table)
    console.print(
        f"mean latency {now.mean_ms:.2f} ms, a fresh placement has {fresh.mean_ms:.2f}; 90th percentile "
        f"{now.p90_ms:.2f} and {fresh.p90_ms:.2f}; {now.overloaded:.0%} of the nodes in use overloaded, "
        f"{now.unplaced} joins without room"
    )


def _world(latency: Path | None, topology: Path | None, repair: bool) -> JoinWorld:
    if (latency is None) == (topology is None):
        raise InputError("give either latencies with --latency or a topology with --topology")
    if latency is not None:
        return read_latency(latency, repair)
    assert topology is not None
    return read_topology(topology)


def _settings(sigma: float | None, bandwidth: float, overload: TooLittleRoom, improve: float) -> Any:
    from meander.place.nova.partition_count import SIGMA
    from meander.place.nova.settings import NovaSettings, Overload

    chosen = sigma if sigma is not None else (None if np.isfinite(bandwidth) else SIGMA)
    return NovaSettings(sigma=chosen, overload=Overload[overload.name], improve_s=improve)


def _probed(problem: Any, candidates: int) -> Any:
    """The problem by coordinates and by few of the latencies that are known."""
    from meander.place.nova.probe import probe
    from meander.place.nova.problem import NO_MATRIX

    if not problem.matrix_ms.size:
        raise InputError("--probe looks latencies up, and only coordinates are known here; leave --by estimated out")
    return probe(replace(problem, matrix_ms=NO_MATRIX), problem.latency_ms, candidates)


def _replicas(placed: Any, world: JoinWorld) -> list[dict[str, Any]]:
    """Per replica its node and the partitions it reads, as ranges of partition numbers."""
    board = placed.board
    return [
        {
            "join": r.join,
            "node": world.names[r.node],
            "left": {"source": world.names[int(board.sources["node"][board.joins["ends"][r.join][0]])],
                     "parts": r.left_parts, "from": r.left.start, "to": r.left.stop},
            "right": {"source": world.names[int(board.sources["node"][board.joins["ends"][r.join][1]])],
                      "parts": r.right_parts, "from": r.right.start, "to": r.right.stop},
            "sink": world.names[int(board.joins["sink"][r.join])],
        }
        for r in placed.replicas()
    ]  # fmt: skip


def _links(relief: Any) -> str:
    """Prints the cost of overloading no link of the topology."""
    refused = [f"join {j}" for j in relief.refused]
    named = f", refused: {', '.join(refused[:3])}{' ...' if len(refused) > 3 else ''}" if refused else ""
    return f"none exceeded: {relief.moved} replicas moved, {relief.cut} cut{named}"


def _draw(placed: Any, path: Path, title: str) -> None:
    laboratory("lab.plots.nova", "a plot").plot(placed, path, title)


def _table(*headings: str) -> Table:
    table = Table(box=None, pad_edge=False, show_header=any(headings))
    for number, heading in enumerate(headings):
        table.add_column(heading, justify="left" if number == 0 or not any(headings) else "right", no_wrap=True)
    return table
