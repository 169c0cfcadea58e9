"""`meander site`: runs the fragments of some nodes in a process of its own, for a coordinator elsewhere."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import typer

from meander.cli.stop_signals import Ending
from meander.coordinator.logs import start_logging
from meander.coordinator.security.private import check_key, keep_private, private_directory
from meander.membership.addresses import INSECURE, check_clear_text, is_everywhere
from meander.membership.certificate_expiry import check_not_over
from meander.model.errors import InputError
from meander.model.expressions.allowed_functions import allowed
from meander.run.channels.kafka.address import addresses, client_settings

group = typer.Typer(
    help="Run the nodes of a site, or make the tokens that let sites join.", invoke_without_command=True
)
WATCH_S = 0.5
MASTERS = ("local", "spark://", "yarn", "k8s://")


@group.callback()
def run(
    context: typer.Context,
    join: Annotated[str | None, typer.Option(help="The coordinator, such as https://hub:8420.")] = None,
    token: Annotated[
        str | None, typer.Option(envvar="MEANDER_SITE_TOKEN", help="The token of this site; better given as variable.")
    ] = None,
    nodes: Annotated[str | None, typer.Option(help="Nodes that run here: train-7,train-8.")] = None,
    name: Annotated[str | None, typer.Option(help="The site's name, if it is not that of its first node.")] = None,
    directory: Annotated[
        Path | None, typer.Option(help="What the site keeps across restarts; .meander-NAME if not given.")
    ] = None,
    listen: Annotated[str, typer.Option(help="Where other sites pull from: host and port, 0 for any.")] = "127.0.0.1:0",
    address: Annotated[str | None, typer.Option(help="Where they reach it, if it differs.")] = None,
    master: Annotated[str | None, typer.Option(help="Spark's master: local[2], spark://..., yarn, k8s://...")] = None,
    slots: Annotated[int, typer.Option(min=1, help="Streaming queries that share the work.")] = 1,
    rebinding: Annotated[
        str, typer.Option(help="How fragments change slots: steady, greedy, single_queue, static or off.")
    ] = "steady",
    durability: Annotated[
        str,
        typer.Option(help="What is acknowledged survives: process, or also power failures: disk."),
    ] = "process",
    channel_budget: Annotated[
        str | None, typer.Option(help="What may wait in one channel, such as 500MB; for a site that is away, say.")
    ] = None,
    overflow: Annotated[str | None, typer.Option(help="What happens beyond that: block, spill or drop_oldest.")] = None,
    functions: Annotated[
        str | None, typer.Option(help="What APPLY may import here: modules, or module:function, between commas.")
    ] = None,
    memory: Annotated[str | None, typer.Option(help="Memory of Spark's driver, such as 2g.")] = None,
    conf: Annotated[
        list[str] | None, typer.Option(help="More of Spark's settings, each as spark.executor.memory=4g.")
    ] = None,
    ca: Annotated[Path | None, typer.Option(help="The authority that signed the certificates of the others.")] = None,
    certificate: Annotated[Path | None, typer.Option(help="This site's certificate; needs --key.")] = None,
    key: Annotated[Path | None, typer.Option(help="The key of the certificate.")] = None,
    mutual_tls: Annotated[
        bool, typer.Option("--mutual-tls", help="Others have to show a certificate of --ca.")
    ] = False,
    broker: Annotated[
        str | None, typer.Option(help="A Kafka broker, such as hub:9092, for channels to sites that use the same one.")
    ] = None,
    broker_settings: Annotated[
        Path | None, typer.Option(help="A file with more settings of Kafka's clients, as name=value.")
    ] = None,
    log_json: Annotated[bool, typer.Option("--log-json", help="Log as JSON lines.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Log more.")] = False,
) -> None:
    """Join a coordinator and run the fragments of some nodes here; SIGTERM and Ctrl-C process all tuples that were
    taken in."""
    if context.invoked_subcommand is not None:
        return
    if join is None or token is None or nodes is None:
        raise InputError("a site needs --join URL, --token TOKEN and --nodes NAMES; `meander site --help` says more")
    names = [n.strip() for n in nodes.split(",") if n.strip()]
    if not names:
        raise InputError("--nodes names no node; write --nodes train-7 or --nodes train-7,train-8")
    if (certificate is None) != (key is None):
        raise InputError("a certificate needs its key: give --certificate and --key together")
    for path in (ca, certificate, key):
        if path is not None and not path.is_file():
            raise InputError("this file is not there; make certificates with `meander certificates`", str(path))
    if key is not None and certificate is not None:
        check_key(key)
    if certificate is not None:
        check_not_over(certificate)
    if address is None and is_everywhere(listen):
        raise InputError(f"others cannot reach this site at {listen}; say where they do with --address HOST:PORT")
    insecure = INSECURE in os.environ
    for url in map(urlsplit, join.split(",")):
        if url.scheme == "http":
            check_clear_text(url.hostname or "", f"the coordinator at {join}", insecure)
    if certificate is None:
        check_clear_text(listen.rsplit(":", 1)[0], f"a site at {listen}", insecure)
    if mutual_tls and (certificate is None or ca is None):
        raise InputError("--mutual-tls needs --certificate, --key and --ca, whose certificates are let in")
    if master is not None and not master.startswith(MASTERS):
        raise InputError(
            f"{master!r} is no master of Spark; write local[2], spark://HOST:7077, yarn or k8s://HOST:PORT"
        )
    if broker is not None:
        addresses(broker)
    may_import = allowed(n.strip() for n in (functions or "").split(",") if n.strip())
    settings = {} if broker_settings is None else client_settings(broker_settings)
    keep_private()
    start_logging(as_json=log_json, verbose=verbose)
    from meander.run.channels.budgets import ChannelBudget
    from meander.run.operators.user_function import allowing
    from meander.site.site import Site, SiteOptions  # Spark is imported only when it is needed

    allowing.functions = may_import

    ChannelBudget.of(channel_budget, overflow)  # raises before Spark starts
    called = name or names[0]
    kept = directory or Path(f".meander-{called}")
    private_directory(kept)
    running = Site(
        SiteOptions(
            called,
            kept,
            join,
            token,
            [{"name": n} for n in names],
            listen,
            address,
            slots,
            rebinding,
            durability,
            channel_budget,
            overflow,
            master,
            ca,
            certificate,
            key,
            _settings(memory, conf or []),
            broker or "",
            settings,
            mutual_tls,
        )
    )
    ending = Ending()
    try:
        running.start()
        ending.ready()
        typer.echo(f"site {called} listens at {running.address}; Ctrl-C finishes and stops it")
        while not ending.told.is_set() and not running.wait(WATCH_S):
            if running.host.ended is not None:
                ending.give_up(running.host.ended)
    finally:
        drained = running.stop(drain=ending.is_ready and ending.told.is_set())
    if running.refusal is not None:
        raise InputError(running.refusal)
    typer.echo("stopped; everything that was taken in is out" if drained else "stopped; the rest goes on next time")


def _settings(memory: str | None, conf: list[str]) -> dict[str, str]:
    """Settings of Spark, checked for their form."""
    found = {} if memory is None else {"spark.driver.memory": memory}
    for text in conf:
        name, equals, value = text.partition("=")
        if not equals or not name.startswith("spark."):
            raise InputError(f"--conf {text!r} is no setting of Spark; write --conf spark.executor.memory=4g")
        found[name] = value
    return found
