"""`meander status`: the condition of a coordinator or a `meander run`; or the nodes and waiting operators of a
placement."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Annotated, Any

import typer

from meander.cli.client import HERE, Json, Token, Url, connect, show
from meander.coordinator.directory.directory import CoordinatorDirectory, announced
from meander.model.errors import InputError
from meander.run.execution.stage_use import in_words
from meander.run.reporting.status_file import SeenStatus, read_status

commands = typer.Typer()

SHOWN = 20
NOTHING_RUNS = 1


@commands.command()
def status(
    where: Annotated[
        Path | None,
        typer.Argument(
            help="A coordinator's directory, the folder that `meander run -o` writes to, or a placement that "
            "`meander place -o` wrote; by default .meander if it is there, else results.",
            show_default=False,
        ),
    ] = None,
    url: Url = None,
    token: Token = None,
    as_json: Json = False,
) -> None:
    """Show how a coordinator or a run is doing, or what a placement could not place, with the reason.

    Ends with exit code 1 when nothing runs or something is wrong.
    """
    if where is None:
        where = HERE if url is not None or CoordinatorDirectory(HERE).exists else Path("results")
    if url is not None or CoordinatorDirectory(where).exists:
        _show_coordinator(where, url, token, as_json)
    elif where.is_file() or where.suffix == ".json":
        _show_placement(_read(where), as_json)
    else:
        _show_run(where, as_json)


def _show_coordinator(directory: Path, url: str | None, token: str | None, as_json: bool) -> None:
    """Ends with code 1 unless all is well: the same definition as `GET /health`, the page and the metrics."""
    if url is None and ((found := announced(CoordinatorDirectory(directory))) is None or not found.runs):
        typer.echo(json.dumps({"status": "down"}) if as_json else f"no coordinator runs on {directory}; `meander up`")
        raise typer.Exit(NOTHING_RUNS)
    client = connect(directory, url, token)
    health, queries = client.get("/health"), []
    if health["status"] not in ("starting", "stopping", "standby"):
        queries = client.get("/queries")
    if as_json:
        shown = [{"id": q["id"], "status": q["status"], "reason": q.get("reason")} for q in queries]
        show(health | {"queries": shown})
    else:
        typer.echo(f"{client.address}: {health['status']}, up for {health['uptime_s']:.0f} s")
        if (standby := health["standby"]) is not None:
            state = "in sync" if standby["in_sync"] else f"{standby['behind_bytes']:,} bytes behind"
            typer.echo(f"  standby at {standby['address'] or 'an address that is not known yet'}: {state}")
        for problem in health["problems"]:
            typer.echo(f"  problem: {problem}")
        for status, count in health["queries"].items():
            if count:
                typer.echo(f"  {count} {'query' if count == 1 else 'queries'} {status}")
        if (use := health.get("stages")) is not None:
            typer.echo(f"  {in_words(use['stages'], use['refused'])}")
        for q in queries:
            if q["status"] in ("idle", "running") and q.get("reason"):
                typer.echo(f"  query {q['id']} is {q['status']}: {q['reason']}")
    if health["status"] != "ok" and (health["status"] != "standby" or health["problems"]):
        raise typer.Exit(NOTHING_RUNS)


def _show_run(folder: Path, as_json: bool) -> None:
    """Ends with code 1 when nothing runs, or there is a problem."""
    seen = read_status(folder)
    if seen is None:
        if as_json:
            typer.echo(json.dumps({"running": False}))
        else:
            typer.echo(f"nothing runs in {folder}/, and nothing did; start with `meander run -o {folder}`")
        raise typer.Exit(NOTHING_RUNS)
    if as_json:
        head = {"running": seen.running, "phase": seen.phase, "process": seen.process}
        times = {"seconds": round(seen.seconds, 1), "age_s": round(seen.age_s, 1)}
        typer.echo(json.dumps(head | times | {"status": seen.status}, indent=2))
    else:
        if seen.running:
            typer.echo(
                f"{folder}/: {seen.phase} for {seen.seconds:.0f} s in process {seen.process}, as of {_ago(seen)}"
            )
        elif seen.phase == "ended":
            typer.echo(f"nothing runs in {folder}/; the last run ended {_ago(seen)} after {seen.seconds:.0f} s")
        else:
            typer.echo(f"nothing runs in {folder}/; process {seen.process} ended unexpectedly, last seen {_ago(seen)}")
        for line in _lines(seen.status) if seen.status else ():
            typer.echo(f"  {line}")
    if not seen.running or (seen.status and not seen.status["healthy"]):
        raise typer.Exit(NOTHING_RUNS)


def _ago(seen: SeenStatus) -> str:
    return f"{seen.age_s:.0f} s ago"


def _lines(found: dict[str, Any]) -> list[str]:
    ingest, delivery, totals = found["ingest"] or {}, found["delivery"] or {}, found["totals"]
    lines = [
        f"tuples: {ingest.get('rows', 0):,} in, {delivery.get('rows', 0):,} out, {found['pending_tuples']:,} wait; "
        f"{totals['late']:,} late, {ingest.get('malformed', 0):,} malformed",
        f"{found['fragments']} fragments in {len(found['slots'])} slots: {totals['steps']:,} steps, "
        f"{1000 * totals['seconds'] / max(1, totals['steps']):.0f} ms each",
        f"state: {found['state_bytes']:,} bytes; store: {found['store']['disk_bytes']:,} bytes on disk, "
        f"{found['store']['pressure']:.0%} full",
    ]
    if (use := found.get("stages")) is not None:
        lines.append(in_words(use["stages"], use["refused"]))
    for name, p in delivery.get("latency", {}).items():
        if p["count"]:
            lines.append(f"latency of {name}: p50 {p['p50_ms']:.0f}, p95 {p['p95_ms']:.0f}, p99 {p['p99_ms']:.0f} ms")
    return (
        lines + [f"problem: {problem}" for problem in found["problems"]] if found["problems"] else [*lines, "healthy"]
    )


def _show_placement(found: dict[str, Any], as_json: bool) -> None:
    waiting = [o for o in found["operators"] if o["node"] is None]
    nodes = Counter(o["node"] for o in found["operators"] if o["node"] is not None)
    if as_json:
        shown = {"queries": len(found["queries"]), "placed": nodes.total(), "nodes": dict(nodes), "waiting": waiting}
        typer.echo(json.dumps(shown, indent=2))
        return
    typer.echo(f"{len(found['queries'])} queries, {nodes.total()} operators placed on {len(nodes)} nodes")
    if not waiting:
        typer.echo("nothing waits")
        return
    typer.echo(f"{len(waiting)} operators wait for another try:")
    for operator in waiting[:SHOWN]:
        typer.echo(f"  {operator['operator']} {operator['does']}: {operator['waits_because']}")
    if len(waiting) > SHOWN:
        typer.echo(f"  and {len(waiting) - SHOWN} more; --json lists them all")


def _read(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text())
        complete = isinstance(found, dict) and {"queries", "operators"} <= found.keys()
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise InputError(f"cannot read the placement: {error}; write one with `meander place -o`", str(path)) from None
    if not complete:
        raise InputError("this is not a placement; write one with `meander place -o`", str(path))
    placement: dict[str, Any] = found
    return placement
