"""`meander testbed`: a coordinator and sites as real processes on this machine, and trouble for them."""

from __future__ import annotations

import json
import signal
import tempfile
import threading
from pathlib import Path
from typing import Annotated

import typer

from meander.lab.testbed.wires import Can, Wires, capabilities
from meander.model.errors import InputError
from meander.model.units import duration_ms

PANEL = "Experiments"
FAILED = 1
READY_S = 600.0
group = typer.Typer(
    no_args_is_help=True, help="Run a coordinator and sites on this machine, and make trouble for them."
)
Mode = Annotated[
    str, typer.Option(help="namespaces, processes, or auto: namespaces where they can be made, else processes.")
]


def register(app: typer.Typer) -> None:
    app.add_typer(group, name="testbed", rich_help_panel=PANEL)


@group.command()
def up(
    topology: Annotated[Path, typer.Argument(help="Topology file with streams and sinks.", show_default=False)],
    sites: Annotated[
        str, typer.Option(help="How many, or which with which nodes: 'west=s0,e0;east=s1,e1'. The rest is at home.")
    ] = "2",
    directory: Annotated[Path, typer.Option("--dir", "-d", help="Where everything is kept.")] = Path("testbed"),
    mode: Mode = "auto",
    loss: Annotated[float, typer.Option(min=0, max=50, help="Packets that links lose, in percent.")] = 0.0,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port of the page; 0 for any that is free.")] = 8420,
    query: Annotated[list[Path] | None, typer.Option("--query", "-q", help="A .sql file to run; repeatable.")] = None,
    duration: Annotated[str | None, typer.Option("--for", help="Stop after a time such as 5min.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print what runs where as JSON.")] = False,
) -> None:
    """Start a coordinator and sites; links have the latency and bandwidth of the topology where that is possible."""
    from meander.lab.testbed.bed import BedError, bed
    from meander.lab.testbed.layout import layout, read_sites, suggested
    from meander.lang.topology_file import load

    seconds = None if duration is None else duration_ms(duration) / 1000
    graph = load(topology).topology
    places = layout(graph, suggested(graph, int(sites)) if sites.isdigit() and int(sites) else read_sites(sites))
    texts = {path.stem: _text(path) for path in query or ()}
    can = _network(mode)
    ended = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ended.set())
    wires = Wires(places, can, loss) if Can.CUT in can else None
    try:
        with bed(directory, topology, places, wires, port=port) as found:
            found.wait_ready(READY_S, lambda text: typer.echo(text, err=True))
            for name, text in texts.items():
                status, body = found.ask("POST", "/queries", {"text": text, "name": name})
                if status >= 300:
                    raise InputError(f"query {name!r}: {body['detail']}")
            shown = found.shown()
            if as_json:
                typer.echo(json.dumps(shown, indent=2))
            else:
                typer.echo(f"running at {found.url}, page: {shown['page']}")
                for host, what in shown["hosts"].items():
                    where = f", namespace {what['namespace']}" if "namespace" in what else ""
                    typer.echo(f"  {host}: {', '.join(what['nodes'])} (process {what['process']}{where})")
                typer.echo("Ctrl-C stops everything")
            ended.wait(seconds)
    except BedError as error:
        typer.secho(f"error: {error}", err=True)
        raise typer.Exit(FAILED) from None


@group.command()
def chaos(
    seed: Annotated[int, typer.Option(min=0, help="The same seed makes the same trouble.")] = 1,
    duration: Annotated[str, typer.Option("--for", help="How long, such as 60s.")] = "60s",
    every: Annotated[str, typer.Option(help="How often something happens, on average.")] = "3s",
    mode: Mode = "auto",
    directory: Annotated[
        Path | None, typer.Option("--dir", "-d", help="Keep everything here, instead of nowhere.")
    ] = None,
    plan: Annotated[bool, typer.Option("--plan", help="Only show what would happen.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
) -> None:
    """Kill, pause, cut, slow and move while queries run, by a seeded schedule; then compare with what must come out.

    Ends with exit code 1 when a result is lost, comes twice or is wrong.
    """
    from meander.lab.testbed.bed import BedError
    from meander.lab.testbed.chaos import run

    seconds, every_s = duration_ms(duration) / 1000, duration_ms(every) / 1000
    can = _network(mode)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if plan:
        _show_plan(seed, seconds, every_s, can)
        return
    with tempfile.TemporaryDirectory(prefix="meander-chaos-") as temporary:
        work = Path(temporary) if directory is None else directory
        work.mkdir(parents=True, exist_ok=True)
        try:
            (outcome,) = run(work, [seed], seconds, can, lambda text: typer.echo(text, err=True), every_s=every_s)
        except BedError as error:
            typer.secho(f"error: {error}", err=True)
            raise typer.Exit(FAILED) from None
    found = outcome.verdict
    if as_json:
        shown = {"seed": seed, "seconds": seconds, "rows": outcome.rows, "trouble": outcome.done}
        shown |= {"refused": outcome.refused, "expected": found.expected, "lost": found.lost, "double": found.double}
        typer.echo(json.dumps(shown | {"wrong": found.wrong, "recovery_s": round(outcome.recovery_s, 1)}, indent=2))
    else:
        trouble = ", ".join(f"{count} {kind}" for kind, count in sorted(outcome.done.items())) or "none"
        typer.echo(f"{outcome.rows:,} rows, trouble: {trouble}; {outcome.refused} moves could not be made just then")
        typer.echo(
            f"of {found.expected:,} results lost {found.lost}, double {found.double}, wrong {found.wrong}; "
            f"all there {outcome.recovery_s:.0f} s after the trouble"
        )
    if not found.is_good:
        raise typer.Exit(FAILED)


def _show_plan(seed: int, seconds: float, every_s: float, can: Can) -> None:
    from meander.lab.testbed import world
    from meander.lab.testbed.layout import layout
    from meander.lab.testbed.schedule import Chances, schedule
    from meander.lang.topology_file import read

    places = layout(read(world.TOPOLOGY).topology, {site: list(nodes) for site, nodes in world.SITES.items()})
    for trouble in schedule(seed, seconds, Chances.of(places, can, world.MOVABLE, world.RELINKED), every_s):
        typer.echo(str(trouble))


def _network(mode: str) -> Can:
    """What the network can imitate; says so when that is not everything."""
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
