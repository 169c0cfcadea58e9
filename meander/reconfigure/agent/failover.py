"""Nodes of a host that are gone: their fragments stop, and copies do what has to be done before a marker."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

from meander.deploy.fragments import Deployment, Fragment
from meander.model.errors import InputError
from meander.model.ids import FragmentId, NodeId
from meander.reconfigure.agent.state.upstream_backup import UpstreamBackup
from meander.reconfigure.emulated_paths import Paths
from meander.run.failures import Cause
from meander.run.fragments.routing import Pause
from meander.run.host import Host
from meander.run.store.commit import Commit
from meander.run.store.journal import JournalError
from meander.run.store.records.deployment import GoneNodeRecord
from meander.run.store.records.record import forget

_log = logging.getLogger(__name__)
GONE = "its node is gone"
"""Why fragments of a node that failed are paused until they have another place."""


class Failover:
    """The fragments of one host whose nodes come and go. A host without `paths` is one machine: it goes as a whole."""

    def __init__(self, host: Host, paths: Paths | None, backup: UpstreamBackup | None, *, has_copies: bool) -> None:
        """`has_copies` says whether the state of a node that is gone is elsewhere."""
        self.host, self.paths, self.backup = host, paths, backup
        self._has_copies = has_copies
        self._back: dict[FragmentId, NodeId] = {}
        """Fragments that may go on, as their nodes are there."""

    def node_gone(self, node: NodeId, fragments: Iterable[FragmentId]) -> None:
        """The node's fragments stop where their last commit left them, until they get another place."""
        assert self.paths is not None
        stopped = [f for f in fragments if f in self.host.routing.fragments]
        with self.host.between_steps(stopped):
            for fragment in stopped:
                self.host.routing.pause(fragment, f"{GONE}: {self.paths.topology.name(node)}")
        if self.backup is not None and not self._has_copies:
            self.backup.lose(stopped)
        copies = tuple(self.paths.copies.get(node, ()))
        self.host.store.commit(Commit(records=(GoneNodeRecord(node, copies),)))

    def node_back(self, node: NodeId, fragments: Iterable[FragmentId]) -> None:
        """The node's fragments go on."""
        assert self.paths is not None
        self.paths.copies.pop(node, None)
        self.let_back(dict.fromkeys(fragments, node))
        self.host.store.commit(Commit(records=(forget(GoneNodeRecord, node),)))

    def let_back(self, fragments: Mapping[FragmentId, NodeId]) -> None:
        """Fragments of nodes that are there go on; those that find no room for it do so with one of the next polls."""
        if self.paths is None:
            return
        self._back.update(fragments)
        for fragment, node in list(self._back.items()):
            try:
                self.fail_over([fragment] if self.paths.topology.is_alive(node) else [])
            except JournalError as error:
                _log.warning("fragment %d waits: %s", fragment, error)
                return
            del self._back[fragment]

    def stop_gone(self, fragments: Iterable[Fragment]) -> None:
        """Fragments of nodes that are gone stop (again): a copy did what lay before a marker, for no more."""
        if self.paths is None:
            return
        topology, routing = self.paths.topology, self.host.routing
        for fragment in fragments:
            if not topology.is_alive(fragment.node) and fragment.id in routing.fragments:
                routing.pause(fragment.id, f"{GONE}: {topology.name(fragment.node)}")

    def fail_over(self, fragments: Iterable[FragmentId]) -> None:
        """Fragments of a node that is gone go on: it is back, or a copy does what they have to do before a marker."""
        for fragment in fragments:
            if self.host.routing.paused.get(fragment, "").startswith(GONE):
                try:
                    if self.backup is not None and self.backup.is_lost(fragment):
                        self.backup.rebuild(self.host.routing.fragments[fragment])
                except InputError as error:  # it would fail again: it waits until somebody resumes it
                    self.host.routing.pause(fragment, Pause(str(error), Cause.DATA))
                else:
                    self.host.routing.resume(fragment)

    def recover(self, deployment: Deployment) -> None:
        """Fragments of nodes that were gone when the process ended, and are still, stay where they are."""
        assert self.paths is not None
        for node, gone in self.host.store.records(GoneNodeRecord).items():
            if self.paths.topology.is_alive(node):
                continue
            self.paths.copies[node] = gone.copies
            self.stop_gone([f for f in deployment.fragments.values() if f.node == node])
