"""Addresses to listen at, and addresses under which others can reach them."""

from __future__ import annotations

import ipaddress

from meander.model.errors import InputError

INSECURE = "MEANDER_INSECURE"
"""The environment variable that allows plain addresses beyond this machine."""
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


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches it.

    >>> is_loopback("127.0.0.1"), is_loopback("[::1]"), is_loopback("hub")
    (True, True, False)
    """
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def check_clear_text(host: str, what: str, insecure: bool) -> None:
    """Raises for an address without TLS that is not this machine's own."""
    if not insecure and not is_loopback(host):
        raise InputError(
            f"{what} is reached over the network without TLS, so that tokens and tuples could be read on the way; use "
            f"certificates (`meander certificates` makes some), or set {INSECURE}=1 where something else encrypts it"
        )
