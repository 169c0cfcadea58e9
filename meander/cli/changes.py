"""`meander plan`, `events`, `move`, `resume`: changes of the infrastructure under a running coordinator."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Annotated, Any

import typer

from meander.cli.client import HERE, Directory, Json, Token, Url, connect, show
from meander.model.errors import InputError
from meander.model.text_files import parse_json, read_text

commands = typer.Typer()

AT_ONCE = 1000

Words = Annotated[
    list[str],
    typer.Argument(
        help="An event as words (`node_removed node=station-2`), as JSON, or a file of events (.jsonl).",
        show_default=False,
    ),
]


def read_events(words: list[str]) -> list[dict[str, Any]]:
    """Events as people type them.

    >>> read_events(["link_removed", "source=a", "target=b"])
    [{'event': 'link_removed', 'source': 'a', 'target': 'b'}]
    """
    first = words[0]
    if len(words) == 1 and first.lstrip().startswith(("{", "[")):
        found = parse_json(first, "event")
        return found if isinstance(found, list) else [found]
    if len(words) == 1 and (first.endswith((".jsonl", ".json")) or Path(first).is_file()):
        lines = enumerate(read_text(Path(first)).split("\n"), 1)
        return [parse_json(line, first, number) for number, line in lines if line.strip()]
    event: dict[str, Any] = {"event": first}
    for word in words[1:]:
        key, sign, value = word.partition("=")
        if not sign:
            raise InputError(f"{word!r} is no part of an event; write key=value, such as node=station-2")
        event[key] = _value(value)
    return [event]


def _value(text: str) -> Any:
    """A number or truth value where it looks like one."""
    try:
        found = json.loads(text)
    except ValueError:
        return text
    return found if isinstance(found, bool | int | float) else text


@commands.command()
def plan(
    event: Words, directory: Directory = HERE, url: Url = None, token: Token = None, as_json: Json = False
) -> None:
    """Show the moves that events would cause, and why; nothing is changed."""
    found = connect(directory, url, token).send("POST", "/events", {"events": read_events(event)}, dry_run="true")
    if as_json:
        show(found)
    else:
        typer.echo("nothing was changed; this would happen:")
        tell(found)


def tell(found: dict[str, Any]) -> None:
    """Prints the result of a batch, applied or not."""
    for m in found["moves"]:
        queries = ", ".join(m["queries"]) or "no query"
        where = f"{m['from'] or 'nowhere'} to {m['to'] or 'nowhere'}"
        typer.echo(f"  operator {m['operator']} of {queries}: {where}; {m['cause']}")
    for cause, count in found.get("reroutes", {}).items():
        typer.echo(f"  {count} {'edge takes' if count == 1 else 'edges take'} another route; {cause}")
    for operator, reason in found["unplaced"].items():
        typer.echo(f"  operator {operator} has no place: {reason}")
    typer.echo(
        f"  {len(found['moves'])} operators placed anew, {found['fragments']} fragments changed, "
        f"{found['rerouted']} edges re-routed"
    )


@commands.command()
def events(
    event: Annotated[
        list[str] | None,
        typer.Argument(
            help="An event as words or JSON, or a file of events (.jsonl) to be sent at their times; "
            "without it, past events are shown.",
            show_default=False,
        ),
    ] = None,
    speed: Annotated[float, typer.Option(min=0.01, help="How much faster than a file's times.")] = 1.0,
    since: Annotated[int | None, typer.Option(min=0, help="Show those after this number.")] = None,
    last: Annotated[int, typer.Option("--last", "-n", min=1, max=1000, help="Show so many at most.")] = 20,
    directory: Directory = HERE,
    url: Url = None,
    token: Token = None,
    as_json: Json = False,
) -> None:
    """Send change events, or show past ones with their results."""
    client = connect(directory, url, token)
    if not event:
        found = client.get("/events", since=since, limit=last)
        if as_json:
            show(found)
            return
        for e in found:
            outcome = e["outcome"]
            came = f"{outcome.get('moves', 0)} moves" if outcome["state"] == "applied" else outcome["state"]
            typer.echo(f"{e['seq']:>7}  {_short(e['event'])}: {came} (batch {outcome['batch']})")
        return
    answers: list[Any] = []
    started = time.monotonic()
    for at_s, group in _by_time(read_events(event)):
        time.sleep(max(0.0, started + at_s / speed - time.monotonic()))
        answer = client.send("POST", "/events", {"events": group})
        answers.append(answer)
        if not as_json:
            typer.echo(f"batch {answer['batch']}: {', '.join(map(_short, group))}")
            tell(answer)
    if as_json:
        show(answers)


def _by_time(found: list[dict[str, Any]]) -> Iterator[tuple[float, list[dict[str, Any]]]]:
    """Events of one time together, with seconds since the first."""
    first = found[0].get("at_ms", 0) if found else 0
    for at_ms, group in groupby(found, key=lambda e: e.get("at_ms", first)):
        together = list(group)
        for start in range(0, len(together), AT_ONCE):
            yield (at_ms - first) / 1000, together[start : start + AT_ONCE]


def _short(event: dict[str, Any]) -> str:
    rest = (
        str(v) for k, v in event.items() if k in ("node", "name", "source", "target", "query", "stream", "operator")
    )
    return " ".join([str(event.get("event")), *rest])


@commands.command()
def move(
    operator: Annotated[int, typer.Argument(help="Its number, as `meander describe` shows it.", show_default=False)],
    node: Annotated[str | None, typer.Argument(help="The node it is to run on.", show_default=False)] = None,
    release: Annotated[
        bool, typer.Option("--release", help="Let its query's mechanism place it again, now and from now on.")
    ] = False,
    directory: Directory = HERE,
    url: Url = None,
    token: Token = None,
    as_json: Json = False,
) -> None:
    """Put one operator on a node, where it stays until it is released; its state goes along."""
    if (node is None) != release:
        raise InputError("say either the node that the operator is to run on, or --release")
    client = connect(directory, url, token)
    if node is None:
        found = client.send("DELETE", f"/moves/{operator}")
    else:
        found = client.send("POST", "/moves", {"operator": operator, "node": node})
    if as_json:
        show(found)
    else:
        tell(found)


@commands.command()
def resume(
    name: Annotated[
        str | None,
        typer.Argument(
            help="A stream, a query (its sink bindings and operators), or 'fragment 7'; everything if not given."
        ),
    ] = None,
    directory: Directory = HERE,
    url: Url = None,
    token: Token = None,
    as_json: Json = False,
) -> None:
    """Try failed parts that are paused again, such as a stream with too many malformed rows; `status` names them."""
    found = connect(directory, url, token).send("POST", "/resume", {"name": name})
    if as_json:
        show(found)
        return
    for each in found:
        if each["problem"] is not None:
            typer.echo(f"{each['where']}: could not be told: {each['problem']}", err=True)
        for what in each["resumed"]:
            typer.echo(f"{each['where']}: {what} goes on")
    if not any(each["resumed"] for each in found):
        typer.echo("nothing was paused" if name is None else f"nothing called {name!r} was paused")
