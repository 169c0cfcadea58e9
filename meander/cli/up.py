"""`meander up`: runs the coordinator of a directory until it is told to stop."""

from __future__ import annotations

import json
import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from meander.adapt.mobility.settings import PredictionSettings
from meander.cli.client import HERE, Directory
from meander.cli.stop_signals import Ending
from meander.coordinator.directory.directory import CoordinatorDirectory
from meander.coordinator.logs import start_logging
from meander.coordinator.security.private import keep_private
from meander.coordinator.security.tls import Tls
from meander.membership.addresses import INSECURE
from meander.membership.protocol import HEARTBEAT_MS
from meander.model.errors import InputError
from meander.model.expressions.allowed_functions import allowed
from meander.model.units import duration_ms
from meander.run.channels.kafka.address import addresses, client_settings

commands = typer.Typer()

STEPPED_DOWN = 3
"""Exit code when another coordinator has taken over: not to be started again by itself."""
POLL_S = 0.5


@commands.command()
def up(
    directory: Directory = HERE,
    topology: Annotated[
        Path | None, typer.Option("--topology", "-t", help="Make the directory with this topology if it is new.")
    ] = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on, instead of 127.0.0.1.")] = None,
    port: Annotated[int | None, typer.Option(min=0, max=65535, help="Port; 0 for any that is free.")] = None,
    slots: Annotated[int | None, typer.Option(min=1, help="Streaming queries that share the work.")] = None,
    amenders: Annotated[
        int | None, typer.Option(min=1, help="Threads that place at the same time; by default by cores, for ilp.")
    ] = None,
    rebinding: Annotated[
        str | None, typer.Option(help="How fragments change slots: steady, greedy, single_queue, static or off.")
    ] = None,
    durability: Annotated[
        str | None,
        typer.Option(help="What is acknowledged survives: process, or also power failures: disk."),
    ] = None,
    channel_budget: Annotated[
        str | None, typer.Option(help="What may wait in one channel, such as 500MB; for a site that is away, say.")
    ] = None,
    overflow: Annotated[str | None, typer.Option(help="What happens beyond that: block, spill or drop_oldest.")] = None,
    certificate: Annotated[str | None, typer.Option(help="Serve HTTPS with this certificate; needs --key.")] = None,
    key: Annotated[str | None, typer.Option(help="The key of the certificate.")] = None,
    ca: Annotated[str | None, typer.Option(help="The authority that signed the certificates of sites.")] = None,
    mutual_tls: Annotated[
        bool | None, typer.Option("--mutual-tls", help="Clients and sites have to show a certificate of --ca.")
    ] = None,
    rpc_listen: Annotated[
        str | None, typer.Option(help="Host and port at which sites pull channels from here.")
    ] = None,
    rpc_address: Annotated[str | None, typer.Option(help="Where they reach it, if it differs: grpc://...")] = None,
    broker: Annotated[
        str | None, typer.Option(help="A Kafka broker, such as hub:9092, for channels to sites that use the same one.")
    ] = None,
    broker_settings: Annotated[
        str | None, typer.Option(help="A file with more settings of Kafka's clients, as name=value.")
    ] = None,
    session_timeout: Annotated[
        str | None, typer.Option(help="A site not heard of for so long, such as 5s, is away.")
    ] = None,
    functions: Annotated[
        str | None, typer.Option(help="What APPLY may import: modules, or module:function, between commas.")
    ] = None,
    validate: Annotated[
        bool | None, typer.Option("--validate", help="Compare what runs with the catalog after every change.")
    ] = None,
    predict: Annotated[
        str | None, typer.Option(help="Send state ahead of mobile nodes: markov, timetable or off.")
    ] = None,
    timetable: Annotated[str | None, typer.Option(help="Where they are when: a file of node,time,attachment.")] = None,
    standby: Annotated[
        str | None,
        typer.Option(help="Follow the coordinator at this address; take over when it dies. Needs --token."),
    ] = None,
    token: Annotated[
        str | None,
        typer.Option(envvar="MEANDER_TOKEN", help="An admin's token of the coordinator that a standby follows."),
    ] = None,
    url: Annotated[
        str | None, typer.Option(help="Where sites find this coordinator, if it differs: https://...")
    ] = None,
    duration: Annotated[str | None, typer.Option("--for", help="Stop after a time such as 5min.")] = None,
    log_json: Annotated[bool, typer.Option("--log-json", help="Log as JSON lines.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Log more.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print addresses and, at the end, a summary as JSON.")
    ] = False,
) -> None:
    """Run the coordinator: it takes up what ran before, serves its API and page, and stops at Ctrl-C."""
    from meander.coordinator.directory.creation import create  # these bring mechanisms and Spark along
    from meander.coordinator.directory.settings import read_settings

    keep_private()
    seconds = None if duration is None else duration_ms(duration) / 1000
    home = CoordinatorDirectory(directory)
    if not home.exists and topology is not None and standby is None:
        create(directory, topology)
    if standby is None:
        home.check()
    start_logging(as_json=log_json, verbose=verbose)
    given = {
        "host": host, "port": port, "slots": slots, "amenders": amenders, "rebinding": rebinding,
        "durability": durability, "channel_budget": channel_budget, "overflow": overflow,
        "certificate": certificate, "key": key,
        "ca": ca, "mutual_tls": mutual_tls, "rpc_listen": rpc_listen, "rpc_address": rpc_address, "broker": broker,
        "broker_settings": broker_settings, "session_timeout": session_timeout, "validate": validate, "url": url,
    }  # fmt: skip
    from meander.api.coordinator import running  # Spark is imported only when it is needed

    ending = Ending()
    spark = None
    if standby is not None:
        from meander.api.standby import following

        if as_json:
            typer.echo(json.dumps({"standby_of": standby}))
        else:
            typer.echo(f"following {standby} (directory {directory}/); Ctrl-C stops it", err=True)
        spark = following(home, standby, token, {k: v for k, v in given.items() if v is not None}, ending.told)
        if spark is None:
            return
    if not as_json:
        typer.echo("starting Spark ...", err=True)
    settings = read_settings(home) | {k: v for k, v in given.items() if v is not None}
    if functions is not None:
        settings["functions"] = allowed(name.strip() for name in functions.split(",") if name.strip())
    if predict is not None or timetable is not None:
        settings["prediction"] = _prediction(settings.get("prediction"), predict, timetable)
    if INSECURE in os.environ:
        settings["insecure"] = True
    with running(directory, None, options_of(settings), spark) as c:
        ending.ready()
        if as_json:
            typer.echo(json.dumps({"address": c.address, "page": c.page}))
        else:
            typer.echo(f"running at {c.address} (directory {directory}/); Ctrl-C stops it")
            typer.echo(f"page: {c.page} (opens once, within an hour; `meander token link` makes another)")
        reason = _wait(c, ending, seconds)
        summary = c.summary()
    if as_json:
        typer.echo(json.dumps(summary, indent=2))
    else:
        typer.echo(
            f"stopped after {summary['uptime_s']:.0f} s: {summary['events']:,} events, "
            f"{summary['reconfigurations']:,} reconfigurations, {summary['tuples_out']:,} results"
        )
    if spark is not None:
        spark.stop()
    if reason is not None:
        typer.secho(f"error: stepped down: {reason}", err=True)
        raise typer.Exit(STEPPED_DOWN)


def _wait(coordinator: Any, ending: Ending, seconds: float | None) -> str | None:
    """Waits until it is time to stop; gives the reason if another coordinator has taken over."""
    until = None if seconds is None else time.monotonic() + seconds
    ended = ending.told
    while not ended.is_set() and (until is None or time.monotonic() < until):
        if coordinator.stepped_down.is_set():
            return str(coordinator.membership_service.membership.leadership.stepped_down)
        if coordinator.parts.host.ended is not None:
            ending.give_up(coordinator.parts.host.ended)
        ended.wait(POLL_S if until is None else min(POLL_S, max(0.0, until - time.monotonic())))
    return None


def _prediction(settings: PredictionSettings | None, mode: str | None, timetable: str | None) -> PredictionSettings:
    """The settings of prediction, with flags that win over them."""
    given = {key: value for key, value in (("mode", mode), ("timetable", timetable)) if value is not None}
    found = PredictionSettings.of(given, Path())
    return replace(settings or found, mode=found.mode, timetable=found.timetable)


def options_of(settings: dict[str, Any]) -> Any:
    from meander.coordinator.options import CoordinatorOptions

    found = dict(settings)
    found["emulate"] = found.pop("emulate_latency", False)
    certificate, key = found.pop("certificate", None), found.pop("key", None)
    if (certificate is None) != (key is None):
        raise InputError("a certificate needs its key: give --certificate and --key together")
    if certificate is not None:
        clients = Path(found["ca"]) if found.get("mutual_tls") and "ca" in found else None
        found["tls"] = Tls(Path(certificate), Path(key), clients)
        found["tls"].check()
    if "ca" in found:
        found["ca"] = Path(found["ca"])
        if not found["ca"].is_file():
            raise InputError("this file is not there; make certificates with `meander certificates`", str(found["ca"]))
    if "broker" in found:
        addresses(found["broker"])
    if "broker_settings" in found:
        found["broker_settings"] = client_settings(Path(found["broker_settings"]))
    if "session_timeout" in found:
        found["session_timeout_ms"] = round(duration_ms(found.pop("session_timeout")))
        found["heartbeat_ms"] = max(100, min(HEARTBEAT_MS, found["session_timeout_ms"] // 5))
    return CoordinatorOptions(**found)
