"""The laboratory, `lab`, whose commands are `bench` and `testbed`: with the source, not in the wheel."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

from meander.model.errors import InputError

LABORATORY = ("lab", "matplotlib")


def laboratory(module: str, wanted_for: str) -> ModuleType:
    """A module of the laboratory, or an error that says how to get it."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] not in LABORATORY:
            raise
        raise InputError(
            f"{wanted_for} needs the laboratory, which is not part of the installed package; "
            "get Meander's source, run `make setup` there, and use its .venv/bin/meander"
        ) from None
