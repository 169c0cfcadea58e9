"""The protocol of most systems today: stop every query that a change touches, as a whole, and deploy it again.

All fragments of the shared plans that the change touches stop at the marker, move their state hop by hop as a whole,
and begin again; serially, one shared plan after the other, or all at the same time.
"""

from __future__ import annotations

from dataclasses import replace

from meander.deploy.fragments import Deployment, DeploymentChange
from meander.deploy.protocols.base import Protocol
from meander.model.global_plan import GlobalPlan
from meander.model.ids import FragmentId


def whole_plans(plan: GlobalPlan, deployment: Deployment, change: DeploymentChange) -> DeploymentChange:
    """The change, widened to all fragments of the shared plans it touches."""
    members = {plan.plan_of(o) for o in change.operators if o in plan.operators}
    touched: set[FragmentId] = set()
    for shared in members:
        touched.update(deployment.owner[o] for o in plan.plans[shared] if o in deployment.owner)
    more = {f: deployment.fragments[f] for f in sorted(touched - change.fragments)}
    again = {f: replace(fragment, version=fragment.version + 1) for f, fragment in more.items()}
    channels = {key: c for f in more for key, c in deployment.channels_of(f)}
    return DeploymentChange(
        {**change.fragments_before, **more},
        {**change.fragments_after, **again},
        {**change.channels_before, **channels},
        {**{k: c for k, c in channels.items() if k not in change.channels_before}, **change.channels_after},
    )


RESTART_CONCURRENT = Protocol(
    "restart_concurrent",
    "stops and deploys again every query that a change touches, all at the same time",
    whole_plans,
    "store_and_forward",
)
RESTART_SERIAL = Protocol(
    "restart_serial",
    "stops and deploys again every query that a change touches, one after the other",
    whole_plans,
    "store_and_forward",
    one_by_one=True,
)
