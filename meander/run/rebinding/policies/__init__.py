"""Rebinding policies: loads in, a slot for each fragment out. One policy, one file; `POLICIES` is the ordered table."""

from __future__ import annotations

from meander.model.errors import unknown
from meander.run.rebinding.policies.base import Policy
from meander.run.rebinding.policies.greedy import Greedy
from meander.run.rebinding.policies.single_queue import SingleQueue
from meander.run.rebinding.policies.static import Static
from meander.run.rebinding.policies.steady import Steady

POLICIES: tuple[Policy, ...] = (Static(), SingleQueue(), Greedy(), Steady())


def policy(name: str) -> Policy:
    """The policy of a name, or an error that names them all."""
    for candidate in POLICIES:
        if candidate.name == name:
            return candidate
    raise unknown("rebinding policy", name, (p.name for p in POLICIES), plural="rebinding policies")
