"""`meander testbed`: a coordinator and sites as real processes on this machine, and trouble for them."""

from __future__ import annotations

import json
import signal
import tempfile
import threading
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lab.testbed.links import Can, capabilities
from meander.model.errors import InputError
from meander.model.units import duration_ms

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lab.testbed.chaos import Plan
    from meander.lang.topology.reader import TopologyFile
    from meander.model.topology.graph import Topology

FAILED = 1
READY_S = 600.0
group = typer.Typer(
    no_args_is_help=True, help="Run a coordinator and sites on this machine, and make trouble for them."
)
Mode = Annotated[
    str, typer.Option(help="namespaces, processes, or auto: namespaces where they can be made, else processes.")
]


@group.command()
def up(
    topology: Annotated[
        Path | None, typer.Argument(help="Topology file with streams and sinks; not with --demo.", show_default=False)
    ] = None,
    sites: Annotated[
        str, typer.Option(help="How many, or which with which nodes: 'west=s0,e0;east=s1,e1'. The rest is at home.")
    ] = "2",
    demo: Annotated[
        bool, typer.Option("--demo", help="The trains and queries of `meander demo`, over the sites.")
    ] = False,
    trains: Annotated[int, typer.Option(min=1, max=200, help="Trains of the demo.")] = 6,
    directory: Annotated[Path, typer.Option("--dir", "-d", help="Where everything is kept.")] = Path("testbed"),
    mode: Mode = "auto",
    loss: Annotated[
        float, typer.Option(min=0, max=50, help="Packets that links lose, in percent, where the topology says nothing.")
    ] = 0.0,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port of the page; 0 for any that is free.")] = 8420,
    query: Annotated[list[Path] | None, typer.Option("--query", "-q", help="A .sql file to run; repeatable.")] = None,
    duration: Annotated[str | None, typer.Option("--for", help="Stop after a time such as 5min.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print what runs where as JSON.")] = False,
) -> None:
    """Start a coordinator and sites; links have the latency, bandwidth and loss of the topology where that is possible.

    With --demo no topology is needed: trains go round a ring line that is cut into as many regions as there are sites.
    """
    from lab.testbed.layout import layout
    from lab.testbed.process_test_bed import ProcessTestBedError, process_test_bed
    from lab.testbed.trains import Trains
    from meander.demo import line as demo_line
    from meander.demo.queries import QUERIES
    from meander.lang.topology.reader import load, read

    seconds = None if duration is None else duration_ms(duration) / 1000
    texts = {path.stem: _text(path) for path in query or ()}
    if demo and topology is not None:
        raise InputError("the demo has a topology of its own; leave out the file, or --demo", str(topology))
    if topology is None and not demo:
        raise InputError("name a topology file, or use --demo")
    contents = read(demo_line.topology(trains)) if topology is None else load(topology)
    places = layout(contents.topology, _sites(sites, contents.topology, trains if demo else None), contents.losses)
    texts = {**QUERIES, **texts} if demo else texts
    can = _network(mode)
    try:
        with (
            _written(contents) if topology is None else nullcontext(topology) as file,
            process_test_bed(directory, file, places, can, port=port, loss_percent=loss) as found,
        ):
            found.wait_ready(READY_S, _say)
            for name, text in texts.items():
                status, body = found.ask("POST", "/queries", {"text": text, "name": name})
                if status >= 300:
                    raise InputError(f"query {name!r}: {body['detail']}")
            shown = found.shown()
            if as_json:
                typer.echo(json.dumps(shown, indent=2))
            else:
                typer.echo(f"running at {found.url}, page: {found.link()}")
                for host, what in shown["hosts"].items():
                    where = f", namespace {what['namespace']}" if "namespace" in what else ""
                    typer.echo(f"  {host}: {', '.join(what['nodes'])} (process {what['process']}{where})")
                typer.echo("Ctrl-C stops everything")
            if demo:
                found.wait_settled(texts, READY_S)
            ended = _told_to_end()
            if demo:
                moving = Trains(found, contents.streams["train"], _say)
                moving.run(ended, seconds)
                _say(f"{moving.handovers} trains changed base stations")
            else:
                ended.wait(seconds)
    except ProcessTestBedError as error:
        typer.secho(f"error: {error}", err=True)
        raise typer.Exit(FAILED) from None


@group.command()
def chaos(
    seed: Annotated[int, typer.Option(min=0, help="The same seed makes the same trouble.")] = 1,
    duration: Annotated[
        str | None, typer.Option("--for", help="How long, such as 60s; 2s for brief schedules.")
    ] = None,
    every: Annotated[str, typer.Option(help="How often something happens, on average.")] = "3s",
    brief: Annotated[
        int, typer.Option("--brief", min=0, help="So many brief schedules, from the seed on, instead of a long one.")
    ] = 0,
    replicas: Annotated[
        bool, typer.Option("--replicas", help="Sites keep replicas of each other, and their disks are lost, too.")
    ] = False,
    mode: Mode = "auto",
    directory: Annotated[
        Path | None, typer.Option("--dir", "-d", help="Keep everything here, instead of nowhere.")
    ] = None,
    plan: Annotated[bool, typer.Option("--plan", help="Only show what would happen.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
) -> None:
    """Kill, pause, cut, slow, fill and move while queries run, by a seeded schedule; then compare with the expected
    results.

    Ends with exit code 1 when a result is lost, comes twice or is wrong.
    """
    from lab.testbed.chaos import BRIEF_S, COMPARED, LONG_S, Plan, run
    from lab.testbed.process_test_bed import ProcessTestBedError
    from lab.testbed.signals import in_order

    seconds = (BRIEF_S if brief else LONG_S) if duration is None else duration_ms(duration) / 1000
    seeds = range(seed, seed + max(1, brief))
    chosen = Plan(seeds, seconds, None if brief else duration_ms(every) / 1000, COMPARED)
    can, disks = _network(mode), _disks(mode)
    if plan:
        _show_plan(chosen, can, disks, replicas)
        return
    with in_order(), tempfile.TemporaryDirectory(prefix="meander-chaos-") as temporary:
        work = Path(temporary) if directory is None else directory
        work.mkdir(parents=True, exist_ok=True)
        try:
            outcomes = run(work, chosen, can, _say, disks=disks, replicas=replicas)
        except ProcessTestBedError as error:
            typer.secho(f"error: {error}", err=True)
            raise typer.Exit(FAILED) from None
    last = outcomes[-1]
    if as_json:
        trouble = {
            str(kind): sum(o.done[kind] for o in outcomes) for kind in sorted({k for o in outcomes for k in o.done})
        }
        shown: dict[str, Any] = {
            "seed": seed,
            "schedules": sum(len(o.seeds) for o in outcomes),
            "seconds": seconds,
            "rows": last.rows,
        }
        shown |= {"trouble": trouble, "refused": sum(o.refused for o in outcomes), "expected": last.verdict.expected}
        shown |= {"lost": last.verdict.lost, "double": last.verdict.double, "wrong": last.verdict.wrong}
        typer.echo(json.dumps(shown | {"recovery_s": round(last.recovery_s, 1)}, indent=2))
    else:
        for outcome in outcomes:
            typer.echo(str(outcome))
        refused = sum(o.refused for o in outcomes)
        typer.echo(f"{last.rows:,} rows; {refused} moves could not be made just then")
    if not last.verdict.is_good:
        raise typer.Exit(FAILED)


def _show_plan(plan: Plan, can: Can, disks: bool, replicas: bool) -> None:
    from lab.testbed import world
    from lab.testbed.layout import layout
    from lab.testbed.schedule import Chances
    from meander.lang.topology.reader import read

    places = layout(read(world.TOPOLOGY).topology, {site: list(nodes) for site, nodes in world.SITES.items()})
    chances = Chances.of(places, can, world.MOVABLE, world.RELINKED, disks=disks, replicas=replicas)
    for seed in plan.seeds:
        if len(plan.seeds) > 1:
            typer.echo(f"seed {seed}")
        for trouble in plan.of(seed, chances):
            typer.echo(str(trouble))


def _disks(mode: str) -> bool:
    """Whether disks can be full; says so when they cannot."""
    from lab.testbed.disks import can_be_full

    if mode == "processes":
        return False
    found, reason = can_be_full()
    if not found:
        typer.echo(reason, err=True)
    return found


def _told_to_end() -> threading.Event:
    """Set by a signal; from then on processes are asked to end."""
    ended = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ended.set())
    return ended


def _say(text: str) -> None:
    typer.echo(text, err=True)


@contextmanager
def _written(contents: TopologyFile) -> Iterator[Path]:
    """A topology as a file, for a test bed that takes a copy of it."""
    from meander.lang.topology.reader import write_yaml

    with tempfile.TemporaryDirectory(prefix="meander-demo-") as folder:
        path = Path(folder) / "demo.yaml"
        write_yaml(contents, path)
        yield path


def _sites(text: str, topology: Topology, trains: int | None) -> dict[str, list[str]]:
    """The nodes of each site; `trains` if it is the demo's line."""
    from lab.testbed.layout import read_sites, suggested
    from meander.demo import line as demo_line

    if not (text.isdigit() and int(text)):
        return read_sites(text)
    return suggested(topology, int(text)) if trains is None else demo_line.regions(trains, int(text))


def _network(mode: str) -> Can:
    """The emulation that the network here allows; prints the missing parts."""
    if mode not in ("auto", "namespaces", "processes"):
        raise InputError(f"no mode {mode!r}; known modes: auto, namespaces, processes")
    if mode == "processes":
        return Can.NOTHING
    can, reason = capabilities()
    if Can.CUT not in can and mode == "namespaces":
        raise InputError(f"{reason}; use --mode processes")
    if Can.CUT not in can:
        typer.echo(f"plain processes on this machine: {reason}", err=True)
    elif reason:
        typer.echo(reason, err=True)
    return can


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read this query: {error}", str(path)) from None
