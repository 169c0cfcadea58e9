"""Retired parts of joins on their way out: each is let go when nothing is left in its memory that arrived before it
retired.

A part has retired when it has seen the last tuple that is not marked: when the change with which it retired is in
effect. What its memory is about by then is its horizon; once everything there is younger, it is of no use any more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from meander.deploy.deployer import Deployer
from meander.model.ids import OperatorId
from meander.place.nova.queries.wiring import Running
from meander.run.host import Host
from meander.run.step.stage_scheduler import STATES_PER_STAGE

NEVER, EVER = -(1 << 62), 1 << 62
Buckets = tuple[int, int]
"""The oldest and the newest time that a memory is about; (EVER, NEVER) for an empty one."""


@dataclass(slots=True)
class _RetiredPart:
    running: Running
    is_effective: Callable[[], bool]
    """Whether the change with which it retired is in effect."""
    horizon: int | None = None
    """The newest time its memory was about when it had retired."""


class RetiredParts:
    """Those of some joins on one host and on the sites around it."""

    def __init__(self, host: Host, deployer: Deployer) -> None:
        self.host, self.deployer = host, deployer
        self.elsewhere: Callable[[], Mapping[OperatorId, Buckets]] = dict
        """The times that the memories of operators at sites are about, as far as they are known."""
        self._retired: dict[int, _RetiredPart] = {}

    def note(self, retired: Iterable[Running], is_effective: Callable[[], bool] | None = None) -> None:
        """These have retired by now; those that are new here did so with a change, or before this process."""
        known, self._retired = self._retired, {}
        effective = is_effective or self._nothing_is_open
        for running in retired:
            self._retired[id(running)] = known.get(id(running)) or _RetiredPart(running, effective)

    def look(self) -> bool:
        """Finds out what has retired; says whether some of it can be let go now."""
        for part in self._retired.values():
            if part.horizon is None and part.is_effective():
                buckets = self._buckets(part.running)
                part.horizon = None if buckets is None else buckets[1]
        return self._nothing_is_open() and bool(self.spent())

    def spent(self) -> list[Running]:
        """Parts whose memory holds nothing that arrived before they retired."""
        found: list[Running] = []
        for part in self._retired.values():
            buckets = None if part.horizon is None else self._buckets(part.running)
            if part.horizon is not None and buckets is not None and buckets[0] > part.horizon:
                found.append(part.running)
        return found

    def _nothing_is_open(self) -> bool:
        return not self.deployer.has_open_changes

    def _buckets(self, running: Running) -> Buckets | None:
        """The times that a part's memory is about; None while it is on its way from one fragment to another."""
        assert running.operator is not None
        owner = self.deployer.deployment.owner.get(running.operator)
        if owner is None:
            return None
        here = memories(self.host, [running.operator]).get(running.operator)
        if here is not None and owner in self.host.routing.fragments:
            return here
        return self.elsewhere().get(running.operator)


def memories(host: Host, operators: Iterable[OperatorId] | None = None) -> dict[OperatorId, Buckets]:
    """The times that the memories of operators on a host are about; of all of them if none are named."""
    wanted = None if operators is None else set(operators)
    found: dict[OperatorId, Buckets] = {}
    for fragment, installed in host.routing.fragments.items():
        for stage, operator in installed.bound.stateful.items():
            if wanted is None or operator in wanted:
                tables = range(len(installed.bound.template.stages[stage].states))
                keys = [stage * STATES_PER_STAGE + t for t in tables]
                buckets = [b for key in keys for b in host.store.state.buckets(fragment, key)]
                found[operator] = min(buckets, default=EVER), max(buckets, default=NEVER)
    return found
