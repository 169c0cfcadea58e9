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
from meander.place.nova.queries.join_parts import Running
from meander.run.host import Host
from meander.run.reporting.join_part_memories import MemorySpan, memories


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
        self.elsewhere: Callable[[], Mapping[OperatorId, MemorySpan]] = dict
        """The memories of join parts at sites, from their last reports."""
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
                memory = self._memory(part.running)
                part.horizon = None if memory is None else memory.newest
        return self._nothing_is_open() and bool(self.spent())

    def spent(self) -> list[Running]:
        """Parts whose memory holds nothing that arrived before they retired."""
        found: list[Running] = []
        for part in self._retired.values():
            memory = None if part.horizon is None else self._memory(part.running)
            if part.horizon is not None and memory is not None and memory.oldest > part.horizon:
                found.append(part.running)
        return found

    def _nothing_is_open(self) -> bool:
        return not self.deployer.has_open_changes

    def _memory(self, running: Running) -> MemorySpan | None:
        """A part's memory; None while it is on its way from one fragment to another, or a report of before that is
        all there is."""
        assert running.operator is not None
        owner = self.deployer.deployment.owner.get(running.operator)
        if owner is None:
            return None
        if owner in self.host.routing.fragments:
            return memories(self.host, [running.operator]).get(running.operator)
        found = self.elsewhere().get(running.operator)
        version = self.deployer.deployment.fragments[owner].version
        return found if found is not None and found.version == version else None
