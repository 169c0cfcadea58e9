"""The agent of the coordinator's own host, which plays all nodes that belong to no site."""

from __future__ import annotations

from collections.abc import Callable

from meander.model.global_plan import GlobalPlan
from meander.reconfigure.agent.agent import Agent
from meander.reconfigure.agent.state.upstream_backup import UpstreamBackup
from meander.reconfigure.emulated_paths import Paths
from meander.reconfigure.state import state_strategy
from meander.run.host import Host


def own_agent(
    host: Host,
    plan: GlobalPlan,
    paths: Paths,
    *,
    strategy: str,
    replicas: int,
    clock: Callable[[], float],
    background: bool,
) -> Agent:
    """The agent, with upstream backup where there are no copies, or where state moves by replay."""
    backup = None
    if not replicas or state_strategy(strategy).needs_input:
        backup = UpstreamBackup(host.store, host.routing, host.stepper.runner, clock, host.options.idle_timeout_ms)
    found = Agent(
        host,
        paths,
        strategy=strategy,
        backup=backup,
        has_copies=bool(replicas),
        clock=clock,
        background=background,
    )
    found.overlaps.plan = plan
    return found
