"""Proofs: how a site shows another one who it is, without any token on the way.

The key of a site is the hash of its token: the site has the token, the coordinator the hash. A proof is good for one
client at one site; the coordinator makes those that a site needs and tells it. What goes through relays is signed with
the proof instead of showing it: a relay can pass a request on, and neither make one nor change it.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

COORDINATOR = "coordinator"
"""The name under which orders are given."""
HOME = "home"
"""The name of the coordinator's own host among the sites."""
ROUTE, FOR, SIGNED = "way", "for", "signed"
"""Of a ticket that goes through relays: the sites that are left to pass, the client, and its signature."""


def key_of(token: str) -> str:
    """The key of the site that has this token."""
    return hashlib.sha256(token.encode()).hexdigest()


def proof(key: str, peer: str) -> str:
    """The proof that `peer` shows at the site with this key."""
    return hmac.new(key.encode(), peer.encode(), hashlib.sha256).hexdigest()


def is_proof(key: str, peer: str, shown: str) -> bool:
    return _is_same(proof(key, peer), shown)


def signature(proof: str, ticket: Mapping[str, Any]) -> str:
    """The signature of a ticket: shows the last site on a route that the owner of this proof made the request; the
    route itself is not signed."""
    said = {name: value for name, value in ticket.items() if name not in (ROUTE, SIGNED)}
    text = json.dumps(said, sort_keys=True, separators=(",", ":"))
    return hmac.new(proof.encode(), text.encode(), hashlib.sha256).hexdigest()


def is_signed(key: str, peer: str, ticket: Mapping[str, Any]) -> bool:
    return _is_same(signature(proof(key, peer), ticket), str(ticket.get(SIGNED, "")))


def _is_same(right: str, shown: str) -> bool:
    return hmac.compare_digest(right.encode(), shown.encode())


@dataclass(frozen=True, slots=True)
class PeerAddress:
    """The address of a site, and the proof to show there."""

    address: str
    proof: str
    broker: str = ""
    """The broker that it uses, if it uses one."""
