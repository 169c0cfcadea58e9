"""The side of a coordinator that faces sites: its own host among them, their replicas, and those who hear of them."""

from __future__ import annotations

from meander.coordinator.loop.loop import PlacementLoop
from meander.coordinator.membership.fleet import MemberFleet
from meander.coordinator.membership.members import Membership
from meander.coordinator.membership.records import MemberState
from meander.coordinator.options import CoordinatorOptions
from meander.coordinator.own_site import OwnSite
from meander.coordinator.replicas.service import ReplicaService
from meander.coordinator.service.service import Service
from meander.lang.topology.reader import TopologyFile
from meander.reconfigure.endpoint import ListenOptions


class SiteSide:
    """Made when the loop is there, before anything begins."""

    def __init__(
        self,
        loop: PlacementLoop,
        membership: Membership,
        service: Service,
        secret: str,
        world: TopologyFile,
        options: CoordinatorOptions,
    ) -> None:
        members = MemberFleet(membership)
        own_site = self.own_site = OwnSite(members, secret, world, _listening(options))
        own_site.join(loop)
        replicas = self.replicas = ReplicaService(loop.driver, membership, members, own_site, world.resilience)
        own_site.facts = replicas.told.facts
        service.has_replicas(replicas)
        present = membership.roster.present
        service.hosts.inventories = lambda: own_site.inventories(present())
        service.hosts.resume_elsewhere = lambda name, operators: own_site.resume(present(), name, operators)

        def heard(site: str, state: MemberState) -> None:
            members.changed()
            if state is MemberState.HERE:
                own_site.joined(site)
                replicas.joined(site)

        membership.watchers.append(heard)


def _listening(options: CoordinatorOptions) -> ListenOptions:
    tls = options.tls
    pair = None if tls is None else (tls.certificate.read_bytes(), tls.key.read_bytes())
    listen = options.rpc_listen or f"{options.host}:0"
    authority = None if options.ca is None else options.ca.read_bytes()
    broker = (options.broker, options.broker_settings)
    return ListenOptions(listen, options.rpc_address, pair, authority, *broker, options.mutual_tls)
