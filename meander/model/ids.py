"""Identifiers. Names are what people write; ids are dense integers, so that a million of them fit in arrays."""

from typing import NewType

NodeId = NewType("NodeId", int)
"""Index of a node in the topology's columns. Never reused while the topology lives."""

OperatorId = NewType("OperatorId", int)
"""Number of an operator, unique inside one query plan or inside the global query plan."""

SharedPlanId = NewType("SharedPlanId", int)
"""Number of a connected component of the global query plan."""

QueryId = NewType("QueryId", str)
"""Name of a running query, chosen by its user."""

FragmentId = NewType("FragmentId", int)
"""Number of a fragment: a maximal connected set of operators of one shared plan on one node."""

ChannelId = NewType("ChannelId", int)
"""Number of a channel: the log from one fragment to the next."""
