"""What the coordinator's own host remembers of fragments and channels that are at sites, and of decisions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from meander.deploy.fragments import Deployment, DeploymentChange
from meander.deploy.records import channel_to_json, deployment_from, fragment_from_json, fragment_to_json
from meander.model.ids import FragmentId
from meander.reconfigure.codec import decode
from meander.reconfigure.messages import Positions
from meander.run.store.store import Store

NUMBERS = "deployment numbers"


def decision_note(number: int) -> str:
    """Under which name the store remembers that a change is decided and not yet in effect everywhere."""
    return f"decided {number}"


def remote_records(change: DeploymentChange, sites: Mapping[FragmentId, str]) -> dict[str, Any]:
    """Notes of fragments and channels of a change that are at sites as a whole."""
    notes: dict[str, Any] = {f"far fragment {f}": None for f in change.fragments_before}
    notes |= {f"far channel {c.id}": None for c in change.channels_before.values()}
    at_sites = (f for f in change.fragments_after.values() if f.id in sites)
    notes |= {f"far fragment {f.id}": [sites[f.id], fragment_to_json(f)] for f in at_sites}
    between = (c for c in change.channels_after.values() if c.sender in sites and c.receiver in sites)
    return notes | {f"far channel {c.id}": channel_to_json(c) for c in between}


def remote_fragments(store: Store) -> dict[FragmentId, str]:
    """The sites of fragments that run at one."""
    return {fragment_from_json(row).id: str(site) for site, row in store.notes("far fragment ").values()}


def recorded(store: Store) -> Deployment:
    """The deployment as the store of the own host knows it."""
    notes = store.notes
    fragments = [*notes("fragment ").values(), *(row for _, row in notes("far fragment ").values())]
    return deployment_from(fragments, [*notes("channel ").values(), *notes("far channel ").values()])


def decisions(store: Store) -> Iterator[tuple[int, list[str], Positions]]:
    """Changes that are decided and not yet in effect everywhere: number, sites, and where fragments have stopped."""
    for key, data in store.notes("decided ").items():
        positions = decode(Positions, data.get("positions") or data.get("told") or {})
        yield int(key.rsplit(" ", 1)[1]), [str(site) for site in data["sites"]], positions
