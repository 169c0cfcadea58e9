"""Secrets in options: a reference travels, the secret does not.

An option that holds a password says where it is: `env:NAME`, a variable, or `secret:PATH`, a file. That is what the
topology file, the ledger, the API and other sites have. It is looked up where the connector is opened, in the process
that needs it, and never shown.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from meander.model.errors import InputError

ENVIRONMENT, FILE = "env:", "secret:"
_TELLING = re.compile(r"pass(word|wd|phrase)|secret|token|credential|jaas|private.?key|api.?key|access.?key", re.I)


@dataclass(frozen=True, slots=True)
class Secret:
    """The place of a secret."""

    place: str
    what: str
    """The option, as errors call it."""

    @staticmethod
    def at(place: str, what: str) -> Secret:
        """Raises when it is not a place but may be the secret itself, which is not repeated."""
        if not is_place(place):
            raise InputError(f"{what} is a secret written out; write env:NAME, or secret:PATH for a file that has it")
        return Secret(place, what)

    def read(self) -> str:
        """The secret; raises where it is not there."""
        if self.place.startswith(ENVIRONMENT):
            name = self.place.removeprefix(ENVIRONMENT)
            found = os.environ.get(name)
            if not found:
                raise InputError(f"{self.what}: the variable {name} is not set here; set it where this connector runs")
            return found
        path = Path(self.place.removeprefix(FILE)).expanduser()
        try:
            return path.read_text(encoding="utf-8").rstrip("\n")
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "it is no text"
            raise InputError(f"{self.what}: {path} cannot be read here ({reason}); put it where this runs") from None


def is_place(text: str) -> bool:
    """Whether a value says where a secret is.

    >>> is_place("env:PASSWORD"), is_place("hunter2")
    (True, False)
    """
    return any(text.startswith(prefix) and text != prefix for prefix in (ENVIRONMENT, FILE))


def is_secret(name: str) -> bool:
    """Whether an option of this name holds a secret.

    >>> is_secret("kafka.sasl.jaas.config"), is_secret("dbtable")
    (True, False)
    """
    return _TELLING.search(name) is not None


def revealed(options: Mapping[str, str], what: str) -> dict[str, str]:
    """Options with the secrets that they refer to, for the system behind a connector. Not to be kept or shown."""
    return {
        name: Secret(value, f"{what}: option {name!r}").read() if is_place(value) else value
        for name, value in options.items()
    }


def check_not_written_out(options: Mapping[str, str], what: str) -> None:
    """Raises for an option that by its name is a secret and by its value is not the place of one."""
    for name, value in options.items():
        if is_secret(name):
            Secret.at(value, f"{what}: option {name!r}")
