"""The doctor: compares the fragments of a running service, here and at its sites, with its catalog.

A change that begins while others are asked makes things look different for a moment. So the examination is made several
times, and only what every one of them found is told.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from meander.coordinator.loop.validation import expected_at, faults_of
from meander.reconfigure.validate import validate
from meander.run.reporting.inventory import Inventory

if TYPE_CHECKING:
    from meander.coordinator.core.core import Core

TIMES = 3
PAUSE_S = 0.3
Inventories = Mapping[str, Inventory | str]
"""The inventory of each site, or the reason why it could not be asked."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One difference: its place and its description."""

    where: str
    what: str


@dataclass(frozen=True, slots=True)
class Examination:
    """The scope of an examination, and every difference that it found."""

    findings: tuple[Finding, ...]
    operators: int
    fragments: int
    channels: int
    under_way: int
    """Changes that were left out, because they are on their way."""
    unasked: Mapping[str, str]
    """Sites that could not be asked, with the reason."""

    def to_json(self) -> dict[str, Any]:
        return {
            "differences": [{"where": f.where, "what": f.what} for f in self.findings],
            "operators": self.operators,
            "fragments": self.fragments,
            "channels": self.channels,
            "under_way": self.under_way,
            "unasked": dict(self.unasked),
        }


def examine(core: Core, elsewhere: Inventories) -> Examination:
    """Compares once, on the core's own thread."""
    loop = core.loop
    delivering = [binding.channel for binding in core.sink_bindings.known.values()]
    found = [_finding(fault) for fault in faults_of(loop, delivering)]
    site_of = loop.driver.site_of
    for site, inventory in elsewhere.items():
        if isinstance(inventory, Inventory):
            wanted = expected_at(loop, lambda f, site=site: site_of(f) == site, delivering)  # type: ignore[misc]
            found += [Finding(f"site {site}", fault) for fault in validate(wanted, inventory)]
    deployment = loop.deployer.deployment
    return Examination(
        tuple(found),
        len(loop.catalog.plan.operators),
        len(deployment.fragments),
        len(deployment.channels),
        len(loop.deployer.under_way),
        {site: told for site, told in elsewhere.items() if isinstance(told, str)},
    )


def _finding(fault: str) -> Finding:
    where, what = fault.split(": ", 1)
    return Finding(where, what)


def diagnose(once: Callable[[], Examination], sleep: Callable[[float], None] = time.sleep) -> Examination:
    """Examines until nothing is found, a few times at most; tells what every examination found."""
    last = once()
    lasting = set(last.findings)
    for _ in range(TIMES - 1):
        if not lasting:
            break
        sleep(PAUSE_S)
        last = once()
        lasting &= set(last.findings)
    kept = tuple(f for f in last.findings if f in lasting)
    return Examination(kept, last.operators, last.fragments, last.channels, last.under_way, last.unasked)
