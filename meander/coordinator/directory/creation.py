"""The making of a coordinator's directory, as `meander init` does."""

from __future__ import annotations

import shutil
from pathlib import Path

from meander.coordinator.directory.directory import CoordinatorDirectory
from meander.coordinator.directory.settings import SETTINGS
from meander.coordinator.security.private import private_directory
from meander.coordinator.security.tokens import write
from meander.lang.topology.reader import load
from meander.model.errors import InputError


def create(directory: Path, topology: Path) -> CoordinatorDirectory:
    """A directory for a coordinator that runs on this topology. Nothing is made when the topology is not good."""
    home = CoordinatorDirectory(directory)
    if home.exists:
        raise InputError("a coordinator has its directory here already; choose another, or remove it", str(directory))
    load(topology)
    try:
        private_directory(directory)
        home.results.mkdir(exist_ok=True)
        shutil.copyfile(topology, home.topology)
        if not home.settings.exists():
            home.settings.write_text(SETTINGS, encoding="utf-8")
        write(home.tokens)  # last: with it, the directory is complete
    except OSError as error:
        raise InputError(f"the directory cannot be made: {error.strerror}", str(directory)) from None
    return home
