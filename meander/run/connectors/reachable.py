"""Sources and sinks that another machine reaches as well: what stands in for a site that is gone takes in and delivers
with these, and waits with all others."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

from meander.run.connectors.options import ConnectorOption, ConnectorOptions

SHARED = ConnectorOption("shared", "whether other machines reach the same files under this path", "false")

Elsewhere = Callable[[ConnectorOptions], str | None]
"""The reason why another machine does not reach it; None if it does. Raises InputError for options that make no
sense."""


def anywhere(options: ConnectorOptions) -> str | None:
    """A computation is the same everywhere."""
    return None


def only_here(reason: str) -> Elsewhere:
    """Nothing else has it."""
    return lambda options: reason


def if_shared(options: ConnectorOptions) -> str | None:
    """Files of a disk that machines share."""
    if not options.truth("shared"):
        return "its files are on that machine; `shared: true` says that others reach them"
    path = Path(options.text("path")).expanduser()
    if not path.is_absolute() and "://" not in options.text("path"):
        raise options.wrong("path", "a path from the root on, as `shared` says that it is the same on every machine")
    return None


def by_address(options: ConnectorOptions) -> str | None:
    """A server is reached from everywhere, unless its address means the machine itself."""
    name = urlsplit(options.text("url")).hostname or ""
    try:
        is_own = ipaddress.ip_address(name).is_loopback
    except ValueError:
        is_own = name == "localhost"
    return "its address means that machine itself" if is_own else None
