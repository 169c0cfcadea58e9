"""Recovery of a driver: what ran by the store of the own host is installed, and what was not decided is aborted."""

from __future__ import annotations

from collections.abc import Mapping

from meander.deploy.contexts import Reconfiguration
from meander.deploy.fragments import Deployment
from meander.model.ids import FragmentId
from meander.reconfigure.agent.agent import Agent
from meander.reconfigure.driver.deployment_records import numbers, recorded
from meander.reconfigure.driver.forks import Forks
from meander.reconfigure.driver.participants import Participants
from meander.reconfigure.serialised_fragment import remember_serialised
from meander.run.fragments.bindings import first_slot
from meander.run.fragments.retained_bindings import bounds_of, keep_only, with_former
from meander.run.installation import install
from meander.run.store.records.deployment import RemoteFragmentRecord


def recover(
    agent: Agent, participants: Participants, forks: Forks, slots: Mapping[FragmentId, int] | None, now: float
) -> tuple[Deployment, list[Reconfiguration], int]:
    """Gives the deployment that will run when all is done, the changes that are under way, and the next number."""
    host, plan, store = agent.host, participants.plan, agent.host.store
    agent.recovery.abort_undecided()
    participants.sites = {f: r.site for f, r in store.records(RemoteFragmentRecord).items()}
    deployment = recorded(store)
    bindings = slots or {f: first_slot(f, host.routing.slots) for f in deployment.fragments}
    delays = {c.id: agent.delay_ms(c) for c in deployment.channels.values()}
    remember_serialised(plan, store)
    known_plan, known = with_former(plan), bounds_of(plan)
    here = [f for f in deployment.fragments.values() if f.id not in participants.sites]
    mine = {f.id for f in here}
    channels = {k: c for k, c in deployment.channels.items() if mine & {c.sender, c.receiver}}
    host.install(install(known_plan, here, channels, bindings, delays, known=known))
    if agent.backup is not None:
        agent.backup.adopt()
    agent.failover.recover(deployment)
    found = forks.resume(known_plan, known, deployment, now)
    kept = [*deployment.fragments.values(), *(f for r in found for f in r.change.fragments_before.values())]
    keep_only(plan, {(f.id, f.version) for f in kept})
    saved = numbers(store)
    deployment.next_fragment = max(deployment.next_fragment, saved.fragment)
    deployment.next_channel = max(deployment.next_channel, saved.channel)
    return deployment, found, saved.reconfiguration
