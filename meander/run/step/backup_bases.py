"""Bases: a fragment's state at an earlier moment, kept by its senders beside the tuples it has consumed since.

Base and tuples together are the fragment's state now (see `backup`). Here is under which number a base is kept, and the
one moment at which a step itself has to take one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from meander.model.ids import FragmentId
from meander.run.fragments.routing import Installed
from meander.run.store.commit import Commit, StateCopy
from meander.run.store.records.progress import FloorRecord
from meander.run.store.store import Store

BASES = 1 << 41
"""Bases are kept under the fragment's number plus this."""


def base_of(fragment: FragmentId) -> FragmentId:
    """Under which number a fragment's base is kept."""
    return FragmentId(BASES + fragment)


def with_bases(commit: Commit, fragments: Mapping[FragmentId, Installed], store: Store) -> Commit:
    """A step's commit with a new base for fragments whose floor it changes, where senders keep consumed tuples.

    Tuples before and after such a step are late by different floors, and could not be told apart later.
    """
    changed = [f for f in commit.changed(FloorRecord) if f in commit.versions and f in fragments]
    kept = [f for f in changed if all(v.keeps for v in store.views.channels.many(fragments[f].ports))]
    if not kept:
        return commit
    return replace(
        commit,
        state_copies=tuple(StateCopy(f, base_of(f)) for f in kept),
        forget=tuple(p for f in kept for p in fragments[f].ports),
    )
