"""The side of a coordinator that faces sites: its own host among them, their replicas, and those who hear of them."""

from __future__ import annotations

from meander.coordinator.backup.capture import Backups
from meander.coordinator.backup.reconciling import Reconciliation
from meander.coordinator.backup.restoring import Restoration
from meander.coordinator.core.core import Core
from meander.coordinator.directory.directory import CoordinatorDirectory
from meander.coordinator.loop.loop import PlacementLoop
from meander.coordinator.membership.fleet import MemberFleet
from meander.coordinator.membership.members import Membership
from meander.coordinator.membership.records import MemberState
from meander.coordinator.options import CoordinatorOptions
from meander.coordinator.own_site import OwnSite
from meander.coordinator.replicas.service import ReplicaService
from meander.coordinator.service.service import Service
from meander.coordinator.standby.following import Following
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
        home: CoordinatorDirectory,
        address: str,
    ) -> None:
        """`address` is where sites find this coordinator."""
        members = MemberFleet(membership)
        own_site = self.own_site = OwnSite(members, secret, world, _listening(options))
        own_site.join(loop)
        own_site.clients.fenced = membership.leadership.meet
        membership.probe = own_site.probe
        following = self.following = Following(home, own_site.replication, membership.roster.members, own_site.facts)
        on_disk = loop.driver.before_telling

        def confirmed() -> None:
            on_disk()
            following.confirm()

        loop.driver.before_telling = confirmed
        service.backup = Backups(home, loop.driver.host.store.segments.link).stream
        service.follow = following.serve
        service.has_standby(following)
        membership.announced = lambda: following.announced(address)
        restored = Restoration.of(home)
        self.reconciliation = None if restored is None else Reconciliation(restored, own_site.inventories)
        if self.reconciliation is not None:
            service.has_reconciliation(self.reconciliation.problems)
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
        self._present = present
        following.start()
        own_site.probe(membership.roster.members())

    def ready(self, core: Core) -> None:
        """Sites can be looked after from now on."""
        core.confirm = self.following.confirm
        self.replicas.ready(core)
        if self.reconciliation is not None:
            self.reconciliation.start(core, self._present)

    def stop(self) -> None:
        """Ends looking after sites."""
        if self.reconciliation is not None:
            self.reconciliation.stop()
        self.replicas.stop()

    def close(self) -> None:
        """After the core has stopped."""
        self.following.stop()
        self.own_site.close()


def _listening(options: CoordinatorOptions) -> ListenOptions:
    tls = options.tls
    pair = None if tls is None else (tls.certificate.read_bytes(), tls.key.read_bytes())
    listen = options.rpc_listen or f"{options.host}:0"
    authority = None if options.ca is None else options.ca.read_bytes()
    broker = (options.broker, options.broker_settings)
    return ListenOptions(listen, options.rpc_address, pair, authority, *broker, options.mutual_tls)
