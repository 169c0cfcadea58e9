"""The channels that a query's tuples go through: from its sources, between its fragments, and out to its sinks."""

from __future__ import annotations

from collections.abc import Collection

from meander.deploy.fragments import Deployment
from meander.model.global_plan import GlobalPlan
from meander.model.ids import ChannelId, OperatorId
from meander.model.operators import Sink, Source
from meander.run.installation import OUTSIDE


def query_channels(
    plan: GlobalPlan, deployment: Deployment, operators: Collection[OperatorId]
) -> dict[ChannelId, OperatorId]:
    """The channels that operators of a query read, and those of its sinks, each with the operator that writes it.

    Where a fragment serves several queries, channels that only operators of the others read are left out.
    """
    mine = {o for o in operators if o in plan.operators}
    found = {ChannelId(OUTSIDE + o): o for o in mine if isinstance(plan[o].spec, Source | Sink)}
    for fragment in {deployment.owner[o] for o in mine if o in deployment.owner}:
        readers = [o for o in deployment.fragments[fragment].operators if o in mine]
        for (upstream, receiver), channel in deployment.channels_of(fragment):
            if receiver == fragment and any(upstream in plan[o].inputs for o in readers):
                found[channel.id] = upstream
    return found
