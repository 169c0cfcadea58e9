"""Deployment protocols: how running queries get from one deployment to the next. One file each, all in this table."""

from __future__ import annotations

from meander.deploy.protocols.base import Protocol
from meander.deploy.protocols.isqd import ISQD
from meander.deploy.protocols.restart import RESTART_CONCURRENT, RESTART_SERIAL
from meander.model.errors import unknown

__all__ = ["ISQD", "PROTOCOLS", "RESTART_CONCURRENT", "RESTART_SERIAL", "Protocol", "protocol"]

PROTOCOLS: tuple[Protocol, ...] = (ISQD, RESTART_SERIAL, RESTART_CONCURRENT)


def protocol(name: str) -> Protocol:
    """The protocol of a name, or an error that names them all."""
    for candidate in PROTOCOLS:
        if candidate.name == name:
            return candidate
    raise unknown("protocol", name, (p.name for p in PROTOCOLS))
