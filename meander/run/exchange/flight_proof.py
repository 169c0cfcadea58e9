"""Proofs: how a site shows another one who it is, without any token on the way.

The key of a site is the hash of its token: the site has the token, the coordinator the hash. A proof is good for one
asker at one site; the coordinator makes those that a site needs and tells it.
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass

COORDINATOR = "coordinator"
"""The name under which orders are given."""
HOME = "home"
"""The name of the coordinator's own host among the sites."""


def key_of(token: str) -> str:
    """The key of the site that has this token."""
    return hashlib.sha256(token.encode()).hexdigest()


def proof(key: str, asker: str) -> str:
    """What `asker` shows at the site with this key."""
    return hmac.new(key.encode(), asker.encode(), hashlib.sha256).hexdigest()


def is_proof(key: str, asker: str, shown: str) -> bool:
    return hmac.compare_digest(proof(key, asker), shown)


@dataclass(frozen=True, slots=True)
class Contact:
    """Where a site can be asked, and what has to be shown there."""

    address: str
    proof: str
    broker: str = ""
    """The broker that it uses, if it uses one."""
