"""The commands of the laboratory, `bench` and `testbed`, which live in `lab`: with the source, not in the wheel.

Without it they are listed all the same, and say how to get it.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

import typer

from meander.model.errors import InputError

PANEL = "Experiments"
LABORATORY = ("lab", "matplotlib")
COMMANDS = {
    "bench": ("lab.bench.command", "Run an experiment. Needs the laboratory, which comes with the source."),
    "testbed": (
        "lab.testbed.command",
        "Run a coordinator and sites on this machine, and make trouble for them. Needs the laboratory.",
    ),
}


def register(app: typer.Typer) -> None:
    for name, (module, about) in COMMANDS.items():
        try:
            import_module(module).register(app)
        except ModuleNotFoundError as error:
            if not _is_laboratory(error):
                raise
            _register_missing(app, name, about)


def laboratory(module: str, wanted_for: str) -> ModuleType:
    """A module of the laboratory, or an error that says how to get it."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if not _is_laboratory(error):
            raise
        raise InputError(
            f"{wanted_for} needs the laboratory, which is not part of the installed package; "
            "get Meander's source, run `make setup` there, and use its .venv/bin/meander"
        ) from None


def _is_laboratory(error: ModuleNotFoundError) -> bool:
    return (error.name or "").split(".")[0] in LABORATORY


def _register_missing(app: typer.Typer, name: str, about: str) -> None:
    settings = {"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []}

    @app.command(name=name, help=about, rich_help_panel=PANEL, context_settings=settings)
    def missing() -> None:
        laboratory(COMMANDS[name][0], f"`meander {name}`")
