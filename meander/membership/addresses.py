"""Addresses to listen at, and addresses under which others can reach them."""

from __future__ import annotations

from meander.model.errors import InputError

EVERYWHERE = frozenset({"", "0.0.0.0", "::", "[::]", "*"})


def is_everywhere(listen: str) -> bool:
    """Whether `host:port` stands for all addresses of a machine, so that it is of no use elsewhere."""
    return listen.rsplit(":", 1)[0] in EVERYWHERE


def check_listen(listen: str, setting: str) -> None:
    """Raises InputError unless it is a `host:port` to listen at.

    >>> check_listen("0.0.0.0:7070", "rpc_listen")
    """
    _, colon, port = listen.rpartition(":")
    if not colon or not port.isdigit() or int(port) > 65535:
        raise InputError(f"{setting} {listen!r} is no address to listen at; write host:port, such as 0.0.0.0:7070")
