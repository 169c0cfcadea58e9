"""The table of commands: where each is and what help says of it, so that only the command that runs is loaded.

A module has its commands in `commands`; one that is a group by itself, such as `meander node`, has them in `group`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from typer.core import TyperCommand, TyperGroup
from typer.main import get_group

from meander.cli.laboratory import laboratory

COORDINATOR, QUERIES, EXPERIMENTS, TOPOLOGIES = "Coordinator", "Queries", "Experiments", "Topologies"


@dataclass(frozen=True, slots=True)
class CommandEntry:
    """One command of `meander`."""

    panel: str
    name: str
    module: str
    about: str
    """The beginning of its help."""


def _entry(panel: str, name: str, module: str, *about: str) -> CommandEntry:
    return CommandEntry(panel, name, module if "." in module else f"meander.cli.{module}", " ".join(about))


COMMANDS: tuple[CommandEntry, ...] = (
    _entry(
        COORDINATOR,
        "demo",
        "demo",
        "Watch trains circle Berlin while queries follow them on Spark; nothing may be lost or double at the end.",
    ),
    _entry(
        QUERIES,
        "explain",
        "explain",
        "Show a query's plan: its operators, their columns and signatures, its demands",
        "and, with a topology, its routes.",
    ),
    _entry(QUERIES, "place", "place", "Place queries on a topology, replay its changes, and show the moves."),
    _entry(QUERIES, "nova", "nova", "Place, split and move joins over very many nodes."),
    _entry(QUERIES, "demand", "demand", "Read demands, and see which mechanism could meet them."),
    _entry(QUERIES, "join-matrix", "join_matrix", "Which producers join in a running query that Nova places."),
    _entry(QUERIES, "adapt", "adapt", "What the adaptation loop decided and why, and its settings."),
    _entry(
        QUERIES,
        "status",
        "status",
        "Show how a coordinator or a run is doing, or what a placement could not place, with the reason.",
    ),
    _entry(
        QUERIES,
        "run",
        "run",
        "Place queries on a topology and run them on Spark; ends with a check that nothing is lost or double.",
    ),
    _entry(
        QUERIES,
        "replay",
        "replay",
        "Run queries on Spark while topology changes come in by their time;",
        "show the time and the losses of each change.",
    ),
    _entry(
        COORDINATOR,
        "init",
        "init",
        "Make a directory for a coordinator: settings, tokens, and the topology it begins with.",
    ),
    _entry(
        COORDINATOR,
        "up",
        "up",
        "Run the coordinator: it takes up what ran before, serves its API and page, and stops at Ctrl-C.",
    ),
    _entry(COORDINATOR, "submit", "queries", "Add a query; it is placed and deployed while everything else runs on."),
    _entry(COORDINATOR, "list", "queries", "List queries with their conditions."),
    _entry(
        COORDINATOR,
        "describe",
        "queries",
        "Show a query: its operators, where they run and why, its demands and its newest results.",
    ),
    _entry(
        COORDINATOR,
        "stop",
        "queries",
        "Stop a query: tuples in flight are delivered, then its resources are freed.",
    ),
    _entry(COORDINATOR, "switch", "queries", "Let another mechanism place a query; it moves while it runs."),
    _entry(COORDINATOR, "plan", "changes", "Show the moves that events would cause, and why; nothing is changed."),
    _entry(COORDINATOR, "events", "changes", "Send change events, or show past ones with their results."),
    _entry(
        COORDINATOR,
        "move",
        "changes",
        "Put one operator on a node, where it stays until it is released; its state goes along.",
    ),
    _entry(
        COORDINATOR,
        "resume",
        "changes",
        "Try failed parts that are paused again, such as a stream with too many malformed rows; `status` names them.",
    ),
    _entry(
        COORDINATOR, "predict", "predict", "Show where mobile nodes are expected to go, and what is prepared for that."
    ),
    _entry(COORDINATOR, "node", "node", "Remove nodes, and bring them back as they were."),
    _entry(
        COORDINATOR,
        "top",
        "top",
        "Watch queries, throughput and reconfigurations; with --json, one object a second.",
    ),
    _entry(COORDINATOR, "doctor", "doctor", "Compare the running fragments, here and at all sites, with the catalog."),
    _entry(COORDINATOR, "backup", "backup", "Save all that a coordinator needs to start again, while it runs on."),
    _entry(COORDINATOR, "restore", "backup", "Make a coordinator's directory from a backup."),
    _entry(COORDINATOR, "site", "site_members", "Run the nodes of a site, or make the tokens that let sites join."),
    _entry(
        COORDINATOR, "token", "meander.cli.users.token", "Make, list and revoke tokens of users, and links to the page."
    ),
    _entry(
        COORDINATOR,
        "certificates",
        "certificates",
        "Make certificates for TLS. The first time, an authority is made too: ca.pem goes everywhere, ca.key nowhere.",
    ),
    _entry(
        COORDINATOR,
        "audit",
        "audit",
        "Show who did what: sites that joined, left or were refused, tokens, and requests that change something.",
    ),
    _entry(TOPOLOGIES, "topology", "topology", "Check, show, import and generate topology files."),
    _entry(
        EXPERIMENTS,
        "bench",
        "lab.bench.command",
        "Run an experiment. Ends with exit code 1 when a target does not hold.",
    ),
    _entry(
        EXPERIMENTS,
        "testbed",
        "lab.testbed.command",
        "Run a coordinator and sites on this machine, and make trouble for them.",
    ),
)
"""In the order of help."""


class CommandTable(TyperGroup):
    """All commands: listed by the table, loaded when they are called."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self._entries = {entry.name: entry for entry in COMMANDS}
        self.commands = {entry.name: _listed(entry) for entry in COMMANDS}

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        name, listed, rest = super().resolve_command(ctx, args)
        return name, listed and self.load(str(name)), rest

    def load(self, name: str) -> Any:
        """The command itself, with its parameters or its own commands."""
        entry = self._entries[name]
        module = laboratory(entry.module, f"`meander {name}`")
        if not hasattr(module, "group"):
            return get_group(module.commands).commands[name]
        found = get_group(module.group)
        found.name = name
        return found


def _listed(entry: CommandEntry) -> TyperCommand:
    return TyperCommand(entry.name, help=entry.about, rich_help_panel=entry.panel)


DETOUR_HELP = "Operators follow when data would be this many times as long on its way as after a fresh placement."
MECHANISM_NAMES = (
    "bottom_up",
    "top_down",
    "ilp",
    "mopa",
    "relaxation",
    "global_optimal",
    "mdcep",
    "producer_consumer",
    "random",
)
"""The mechanisms as `--mechanism` takes them; a test compares them with their table."""
