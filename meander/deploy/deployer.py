"""The deployer: knows the running, the in-flight and the wanted deployment; decides which reconfigurations begin.

It reconciles: the changes since the last call are compared with the deployment after all reconfigurations in flight, so
a change that had to wait is considered together with newer ones. Reconfigurations that touch the same fragments come
one after the other; all others run at the same time. It decides and keeps a record; it does not act.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from meander.deploy.contexts import Reconfiguration, reconfiguration, united
from meander.deploy.cycle_constraints import cycles_between, has_own_cycle, independent, share_a_cycle
from meander.deploy.fragments import Channel, ChannelKey, Deployment, DeploymentChange, Placed, redeploy, rerouted
from meander.deploy.protocols.base import Protocol
from meander.deploy.protocols.isqd import ISQD
from meander.deploy.protocols.sms import beside, may_overlap
from meander.deploy.validate import validate
from meander.model.ids import FragmentId, OperatorId
from meander.model.placement import Edge


@dataclass(frozen=True, slots=True)
class FailedPart:
    """An aborted reconfiguration, and the reason."""

    number: int
    reason: str


@dataclass
class Deployer:
    """`deployment` is what will run when all reconfigurations in flight are done."""

    placed: Placed
    deployment: Deployment = field(default_factory=Deployment)
    protocol: Protocol = ISQD
    special: dict[OperatorId, Protocol] = field(default_factory=dict)
    """Operators that move by another protocol than all others, because they are in a transition."""
    failing: frozenset[OperatorId] = frozenset()
    """Operators that wait because they failed: they have nothing to say that others could take over from."""
    under_way: dict[int, Reconfiguration] = field(default_factory=dict)
    failures: list[FailedPart] = field(default_factory=list)
    next_number: int = 1
    _moved: dict[OperatorId, None] = field(default_factory=dict)
    incomplete: dict[OperatorId, None] = field(default_factory=dict)
    """Operators that moved, but only make sense together with others that have no place yet."""
    _rerouted: dict[Edge, None] = field(default_factory=dict)
    _loose: dict[OperatorId, None] = field(default_factory=dict)
    """Operators at channels whose route was not decided by the placement: every change may have cut it or brought it
    back."""

    def note(self, moved: Iterable[OperatorId], rerouted: Iterable[Edge] = ()) -> None:
        """Operators that came, went or moved, and edges that lead another way now."""
        self._moved.update((o, None) for o in moved)
        self._rerouted.update((e, None) for e in rerouted)

    @property
    def has_waiting_changes(self) -> bool:
        """Whether a change waits for reconfigurations in flight."""
        return bool(self._moved or self._rerouted)

    @property
    def waiting(self) -> frozenset[OperatorId]:
        """Operators whose changes wait for reconfigurations in flight."""
        return frozenset([*self._moved, *self.incomplete, *(o for edge in self._rerouted for o in edge)])

    @property
    def has_open_changes(self) -> bool:
        return bool(self.under_way) or self.has_waiting_changes

    def begin(self) -> tuple[list[Reconfiguration], dict[ChannelKey, Channel]]:
        """The reconfigurations that can start now, and channels that only change their way.

        Changes that touch a reconfiguration in flight stay noted.
        """
        started: list[Reconfiguration] = []
        moved = self.incomplete | self._moved
        self._moved, self.incomplete = {}, {}
        self.placed.withheld.clear()
        self.placed.withheld.update(o for bundle in self._not_begun() for o in bundle)
        self.incomplete.update((o, None) for o in moved if o in self.placed.withheld)
        moved = {o: None for o in moved if o not in self.placed.withheld}
        change = redeploy(self.placed, self.deployment, moved) if moved else DeploymentChange()
        if self.protocol.widening and change:
            change = self.protocol.widening(self.placed.plan, self.deployment, change)
        for part, protocol in self._parts(change):
            if self._is_incomplete(part):
                self.incomplete.update(dict.fromkeys(part.operators))
                continue
            if self._collides(part) or (self.protocol.one_by_one and self.under_way):
                self.note(part.operators)
                continue
            self.deployment.apply(part)
            begun = reconfiguration(self.next_number, part, self.placed.plan, protocol)
            if protocol is not self.protocol:
                begun = replace(begun, strategy=protocol.state)
            self.next_number += 1
            self.under_way[begun.number] = begun
            started.append(begun)
        return started, self._reroutes(moved)

    def _parts(self, change: DeploymentChange) -> Iterator[tuple[DeploymentChange, Protocol]]:
        """Independent parts, each with its protocol; those of transitions that touch more than they must come first."""
        found = self._independent(change)
        if not self.special:
            yield from ((part, self.protocol) for part in found)
            return
        chosen = [(part, self._protocol_of(part)) for part in found]
        wide = {id(p): p for _, p in chosen if p.widening is not None and p is not self.protocol}
        for protocol in wide.values():
            assert protocol.widening is not None
            mine = united(part for part, p in chosen if p is protocol)
            for part in self._independent(protocol.widening(self.placed.plan, self.deployment, mine)):
                yield part, protocol
        for part, protocol in chosen:
            if id(protocol) not in wide:
                yield (beside(part, self.deployment) if protocol.overlaps else part), protocol

    def _independent(self, change: DeploymentChange) -> list[DeploymentChange]:
        return independent(change, self.deployment, self._changes_under_way)

    @property
    def _changes_under_way(self) -> list[DeploymentChange]:
        return [r.change for r in self.under_way.values()]

    def _protocol_of(self, part: DeploymentChange) -> Protocol:
        """That of a transition if the part belongs to one; a part that cannot overlap moves its state."""
        found = next((self.special[o] for o in sorted(part.operators) if o in self.special), self.protocol)
        if not found.overlaps:
            return found
        if not self.failing.isdisjoint(part.operators):
            return self.protocol
        around = cycles_between(self.deployment, self._changes_under_way, [part])
        may = may_overlap(self.placed.plan, part, self.special) and not has_own_cycle(around, part)
        return found if may else self.protocol

    def _reroutes(self, moved: Mapping[OperatorId, None]) -> dict[ChannelKey, Channel]:
        """New routes of channels whose fragments stay; also at operators that do not run where they are placed."""
        edges = dict(self._rerouted)
        plan = self.placed.plan
        self._loose.update(moved)
        self._loose = {o: None for o in self._loose if o in plan.operators and (o in moved or self._is_loose(o))}
        for operator in self._loose:
            edges.update((e, None) for e in plan.edges_of(operator))
        self._loose = {o: None for o in self._loose if self._is_loose(o)}
        found = rerouted(self.placed, self.deployment, edges)
        stopped = [r for r in self.under_way.values() if not r.protocol.overlaps]
        busy = frozenset(f for r in stopped for f in r.change.fragments)
        self._rerouted = {}
        now: dict[ChannelKey, Channel] = {}
        for key, channel in found.items():
            if channel.sender in busy or channel.receiver in busy:
                self._rerouted.update(
                    ((channel.upstream, reader), None)
                    for reader in self.deployment.fragments[channel.receiver].operators
                    if reader in plan.operators and channel.upstream in plan[reader].inputs
                )
            else:
                now[key] = channel
        self.deployment.reroute(now)
        return now

    def _is_loose(self, operator: OperatorId) -> bool:
        """Whether it waits for a place, or runs elsewhere than it is placed."""
        node = self.placed.placement.nodes.get(operator)
        owner = self.deployment.owner.get(operator)
        return node is None or (owner is not None and self.deployment.fragments[owner].node != node)

    def _collides(self, change: DeploymentChange) -> bool:
        """Whether it changes a fragment that another one changes or leans on, leans on one that another changes, or
        would wait in a cycle with the fragments of another."""
        mine, near = change.fragments, change.neighbours
        for other in self.under_way.values():
            theirs = other.change.fragments
            if mine & theirs or near & theirs or mine & other.change.neighbours:
                return True
        if not self.under_way:
            return False
        around = cycles_between(self.deployment, self._changes_under_way, [change])
        return any(share_a_cycle(around, change, other) for other in self._changes_under_way)

    def _not_begun(self) -> list[Mapping[OperatorId, None]]:
        """Operators that only make sense together, of which none runs yet and some have no place."""
        nodes, owner = self.placed.placement.nodes, self.deployment.owner
        bundles = self.placed.plan.bundles.values()
        return [b for b in bundles if any(o not in nodes for o in b) and not any(o in owner for o in b)]

    def _is_incomplete(self, change: DeploymentChange) -> bool:
        """Whether it touches operators that only make sense together, some of which have no place and never had one."""
        plan, nodes, owner = self.placed.plan, self.placed.placement.nodes, self.deployment.owner
        touched = change.operators if plan.bundles else frozenset()
        return any(
            any(o not in nodes and o not in owner and o in plan.operators for o in bundle)
            for bundle in plan.bundles.values()
            if not touched.isdisjoint(bundle)
        )

    def finished(self, number: int) -> None:
        """A reconfiguration has taken effect."""
        del self.under_way[number]

    def failed(self, number: int, reason: str) -> None:
        """A reconfiguration was aborted: what ran before runs again, and the change is open again."""
        gone = self.under_way.pop(number)
        self.deployment.apply(gone.change.reversed())
        self.failures.append(FailedPart(number, reason))
        self.note(gone.change.operators)

    @property
    def unsettled(self) -> frozenset[OperatorId]:
        """Operators whose deployment differs from the catalog for now."""
        return self.waiting.union(*(r.change.operators for r in self.under_way.values()))

    def validate(self) -> list[str]:
        """Yields differences between the catalog and the deployment after all reconfigurations in flight; empty when
        they agree."""
        return validate(self.placed, self.deployment, self.unsettled)

    def running(self) -> dict[FragmentId, int]:
        """The version of every fragment that runs now: reconfigurations in flight have not taken effect."""
        found = {f.id: f.version for f in self.deployment.fragments.values()}
        for each in self.under_way.values():
            for fragment in each.change.fragments_after:
                found.pop(fragment, None)
            found.update((f.id, f.version) for f in each.change.fragments_before.values())
        return found
