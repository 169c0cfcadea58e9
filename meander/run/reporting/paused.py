"""Paused fragments as a site tells of them with its heartbeats, and as the coordinator reads that."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from meander.model.ids import FragmentId, OperatorId
from meander.run.failures import Cause
from meander.run.fragments.routing import Pause
from meander.run.host import Host

MOST_FACTS = 100
"""Fragments that are told of at most: a heartbeat is small."""


def failed_facts(host: Host) -> dict[str, Any]:
    """By fragment: the version that is paused, whose failure it was, the reason, and the operators that failed."""
    running, found = host.routing.fragments, dict[str, Any]()
    for fragment, pause in list(host.routing.pauses.items())[:MOST_FACTS]:
        if fragment in running and pause.cause is not None:
            version, cause = running[fragment].version, pause.cause.value
            found[str(fragment)] = [version, cause, pause.reason, sorted(pause.operators)]
    return found


def pauses_from(facts: Mapping[str, Any]) -> dict[tuple[FragmentId, int], Pause]:
    """By fragment and version; unknown entries are left out."""
    found: dict[tuple[FragmentId, int], Pause] = {}
    for fragment, told in facts.items():
        try:
            version, cause, reason, operators = told
            failed = frozenset(OperatorId(int(o)) for o in operators)
            found[FragmentId(int(fragment)), int(version)] = Pause(str(reason), Cause(cause), failed)
        except (TypeError, ValueError):
            continue
    return found
