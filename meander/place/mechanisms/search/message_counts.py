"""The definition of a control message, so that mechanisms count alike.

A mechanism that runs on one machine still has to learn its inputs, and to tell nodes its decisions. It counts every
message that it would exchange for that, once, with its payload. Keeping the cost space up to date is counted by the
cost space and not by each placement. `docs/reference/mechanisms.md` lists the messages of each mechanism.
"""

from __future__ import annotations

from enum import IntEnum, unique

from meander.place.problem import Proposal


@unique
class Message(IntEnum):
    """Kinds of control messages. The value is the payload in bytes."""

    ANSWER = 9
    """Yes or no: operator 8, answer 1."""
    ACKNOWLEDGE = 8
    """The operator is taken: operator 8."""
    ASK = 24
    """Is there room: operator 8, slots 4, tuples/s 8, sender 4."""
    OFFER = 28
    """Take this operator or pass it on: as asking, and the node it is meant for."""
    ASSIGN = 12
    """Run this operator: operator 8, node 4."""
    STATE = 16
    """Bytes of a node's remaining room: node 4, slots 4, tuples/s 8."""
    LATENCY = 20
    """Bytes of a measured link or path: two nodes 8, latency 8, bandwidth 4."""
    COORDINATE = 36
    """Bytes of a node's coordinate in the cost space: node 4, two coordinates 16, height 8, confidence 8."""


def count(proposal: Proposal, message: Message, times: int = 1) -> None:
    """Adds messages of one kind to the cost of the proposal."""
    proposal.messages += times
    proposal.bytes += times * message


def count_assignments(proposal: Proposal) -> None:
    """The decision is sent to every chosen node, which confirms."""
    placed = len(proposal.nodes)
    proposal.messages += 2 * placed
    proposal.bytes += placed * (Message.ASSIGN + Message.ACKNOWLEDGE)
