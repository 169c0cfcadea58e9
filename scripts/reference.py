"""Writes docs/reference/http.md and docs/reference/cli.md from the code: .venv/bin/python scripts/reference.py"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import typer

from meander.adapt.setting_layers import SETTINGS
from meander.api import ABOUT, BASE, make_app
from meander.cli.main import app
from meander.coordinator.change_reader import ChangeReader
from meander.coordinator.read_model.hub import Hub
from meander.coordinator.security.tokens import Role, Tokens
from meander.coordinator.service.service import Service

FOLDER = Path(__file__).parents[1] / "docs" / "reference"
MADE = "<!-- made by scripts/reference.py; change the code and run it again -->"


# ---------------------------------------------------------------- HTTP


def http_reference() -> str:
    api = make_app(Service(Hub("reference"), Tokens(), ChangeReader({}, {}))).openapi()
    lines = ["# HTTP API", "", MADE, "", *ABOUT.split("\n"), ""]
    lines += [f"All paths begin with `{BASE}`. The machine-readable description is at `{BASE}/openapi.json`.", ""]
    used: dict[str, None] = {}
    tag = None
    for path, methods in api["paths"].items():
        for method, found in methods.items():
            if found["tags"][0] != tag:
                tag = found["tags"][0]
                lines += [f"## {tag.capitalize()}", ""]
            lines += _operation(method, path, found, used)
    lines += ["## Objects", "", "A field that may be left out has a `?`.", ""]
    schemas, done = api["components"]["schemas"], set[str]()
    while left := [name for name in used if name not in done]:
        for name in left:
            done.add(name)
            lines += _object(name, schemas[name], used)
    return "\n".join(lines).rstrip() + "\n"


def _operation(method: str, path: str, found: dict[str, Any], used: dict[str, None]) -> Iterator[str]:
    yield f"### `{method.upper()} {path.removeprefix(BASE)}`"
    yield ""
    yield from inspect.cleandoc(found["description"]).split("\n")
    yield ""
    for parameter in found.get("parameters", ()):
        about = parameter.get("description", "") or parameter["schema"].get("description", "")
        default = parameter["schema"].get("default")
        text = f"- {parameter['in']} `{parameter['name']}`: {_type(parameter['schema'], used)}"
        text += "" if default is None else f", by default {default}"
        yield text + (f". {about}" if about else "")
    if "requestBody" in found:
        yield f"- body: {_type(found['requestBody']['content']['application/json']['schema'], used)}"
    for status, response in found["responses"].items():
        if status.startswith("2"):
            kind, content = next(iter(response.get("content", {"nothing": {}}).items()))
            schema = content.get("schema", {})
            shown = _type(schema, used) if kind == "application/json" else f"`{kind}`"
            yield f"- answer {status}: {shown}"
    yield ""


def _object(name: str, schema: dict[str, Any], used: dict[str, None]) -> Iterator[str]:
    yield f"### {name}"
    yield ""
    required = set(schema.get("required", ()))
    for field, found in schema.get("properties", {}).items():
        about = found.get("description", "")
        mark = "" if field in required else "?"
        yield f"- `{field}`{mark}: {_type(found, used)}{'. ' + about if about else ''}"
    yield ""


def _type(schema: dict[str, Any], used: dict[str, None]) -> str:
    """A schema in a few words."""
    if "$ref" in schema:
        name = schema["$ref"].rsplit("/", 1)[1]
        used[name] = None
        return f"[{name}](#{name.lower()})"
    if "anyOf" in schema:
        return " or ".join(_type(s, used) for s in schema["anyOf"])
    if "const" in schema:
        return f"`{schema['const']}`"
    if "enum" in schema:
        return " or ".join(f"`{value}`" for value in schema["enum"])
    match schema.get("type"):
        case "array" if "prefixItems" in schema:
            return f"[{', '.join(_type(s, used) for s in schema['prefixItems'])}]"
        case "array":
            return f"list of {_type(schema.get('items', {}), used)}"
        case "object" if isinstance(schema.get("additionalProperties"), dict):
            return f"object of {_type(schema['additionalProperties'], used)} by name"
        case "object":
            return "object"
        case "string":
            return "text"
        case "integer":
            return "whole number"
        case "null" | "boolean" | "number" as plain:
            return str(plain)
    return "anything"


# ---------------------------------------------------------------- command line


def cli_reference() -> str:
    command = typer.main.get_command(app)
    lines = ["# Command line", "", MADE, ""]
    lines += ["Exit codes: 0 done, 1 a failure, 2 something you can correct. `meander --install-completion` makes the"]
    lines += ["shell complete commands, options and names of queries.", ""]
    lines += _commands(command, "meander")
    return "\n".join(lines).rstrip() + "\n"


def _commands(command: click.Command, name: str) -> Iterator[str]:
    context = click.Context(command, info_name=name)
    subcommands = getattr(command, "commands", None)
    if subcommands is not None:
        if name != "meander":
            yield from (f"## `{name}`", "", _plain(command.help), "", *_options(command))
        for child in [command.load(each) for each in subcommands] if name == "meander" else subcommands.values():
            yield from _commands(child, f"{name} {child.name}")
        return
    usage = " ".join(command.collect_usage_pieces(context))
    yield from (f"## `{name}`", "", _plain(command.help), "", "```", f"{name} {usage}", "```", "")
    yield from _options(command)


def _options(command: click.Command) -> list[str]:
    rows = [row for p in command.params if (row := _parameter(p)) is not None]
    return ["| option | meaning | default |", "|---|---|---|", *rows, ""] if rows else []


def _parameter(parameter: Any) -> str | None:
    if parameter.name == "help" or getattr(parameter, "hidden", False):
        return None
    is_option = parameter.param_type_name == "option"
    shown = (
        ", ".join(f"`{o}`" for o in parameter.opts)
        if is_option
        else f"`{(parameter.metavar or parameter.name).upper()}`"
    )
    variable = getattr(parameter, "envvar", None)
    about = _plain(getattr(parameter, "help", "") or "")
    about += f" (or `{variable}` in the environment)" if variable else ""
    default = parameter.default
    empty = default is None or default is False or default == () or callable(default) or not parameter.show_default
    return f"| {shown} | {about} | {'' if empty else f'`{default}`'} |".replace("<", "\\<")


def _plain(text: str | None) -> str:
    """Help as one paragraph."""
    return re.sub(r"\s+", " ", (text or "").replace("|", "\\|")).strip()


def settings_reference() -> str:
    """The settings of the adaptation loop, with the values that apply."""
    rows = [
        f"| `{s.name}` | `{_written(s.default)}` | {s.about} | {s.allowed} | {'yes' if s.one_query else 'no'} |"
        for s in SETTINGS
    ]
    return "\n".join(
        [
            "# Settings of adaptation",
            "",
            MADE,
            "",
            "In the section `[adaptation]` of `meander.toml` for all queries, in `[adaptation.queries.NAME]` for one.",
            "What is set at run time with `meander adapt set` or over HTTP (`PATCH /adaptation`,",
            "`PATCH /queries/{query}/adaptation`) wins and is kept across restarts. `meander adapt show` says what",
            "applies, and where it comes from. What they mean:",
            "[adaptation](../concepts/adaptation.md#settings).",
            "",
            "| setting | default | what it is | allowed | one query |",
            "|---|---|---|---|---|",
            *rows,
            "",
        ]
    )


# ---------------------------------------------------------------- roles


def roles_reference() -> str:
    """The roles that may ask for each thing, found out by asking with a token of each role."""
    lines = [
        "# Roles",
        "",
        MADE,
        "",
        "Which requests are answered to whom: made by asking with a token of each role. A token of a site opens",
        "that site's own paths and nothing else; tokens of users do not open those.",
        "",
        f"| request | {' | '.join(role.value for role in Role)} |",
        "|---" * (len(Role) + 1) + "|",
    ]
    for (path, method), who in sorted(answered_roles().items()):
        cells = ["the site"] * len(Role) if who is None else ["yes" if role in who else "no" for role in Role]
        lines.append(f"| `{method} {path}` | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def answered_roles() -> dict[tuple[str, str], frozenset[Role | None] | None]:
    """By path and method, the roles that are not refused; with None among them strangers too. None: only sites."""
    tokens = Tokens()
    shown = {None: None, **{role: tokens.make(f"a-{role.value}", role) for role in Role}}
    service = Service(Hub("reference"), tokens, ChangeReader({}, {}))
    app = make_app(service)
    found: dict[tuple[str, str], frozenset[Role | None] | None] = {}
    for path, methods in app.openapi()["paths"].items():
        for method, operation in methods.items():
            asked = path.removeprefix(BASE), method.upper()
            if any("SiteToken" in each for each in operation.get("security", ())):
                found[asked] = None
                continue
            statuses = {role: asyncio.run(_status(app, method.upper(), path, token)) for role, token in shown.items()}
            found[asked] = frozenset(role for role, status in statuses.items() if status not in (401, 403, 429))
    return found


async def _status(app: Any, method: str, path: str, token: str | None) -> int:
    """The status of one request without a body; the rest of the answer is not waited for."""
    heard: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    sent = False

    async def receive() -> dict[str, Any]:
        nonlocal sent
        if sent:
            await asyncio.Event().wait()
        sent = True
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start" and not heard.done():
            heard.set_result(int(message["status"]))

    headers = [] if token is None else [(b"authorization", f"Bearer {token}".encode())]
    scope = {"type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "scheme": "http", "root_path": ""}
    scope |= {"method": method, "path": path, "raw_path": path.encode(), "query_string": b"", "headers": headers}
    task = asyncio.ensure_future(app({**scope, "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 2)}, receive, send))
    await asyncio.wait({task, heard}, return_when=asyncio.FIRST_COMPLETED, timeout=10.0)
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError, Exception):
        await task
    return heard.result()


def _written(value: object) -> str:
    """A default as it is written in the settings file."""
    return re.sub(r"\.0\b", "", json.dumps(value))


REFERENCES = {
    "http.md": http_reference,
    "cli.md": cli_reference,
    "adaptation.md": settings_reference,
    "roles.md": roles_reference,
}

if __name__ == "__main__":
    for name, made in REFERENCES.items():
        (FOLDER / name).write_text(made(), encoding="utf-8")
        sys.stdout.write(f"wrote {FOLDER / name}\n")
