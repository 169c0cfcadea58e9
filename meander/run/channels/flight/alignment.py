"""A log that has lost its end, and the copy of it that has seen more: what both do to go on with the same numbers.

The copy tells with each request in which incarnation its last record was. The log answers with its lineage if that is
another one. So the copy knows the last number that both have in common: what it has not processed behind it, it lets
go of, since the log writes that anew. What it has processed cannot be taken back; then the log numbers what it has
written since, and writes from now on, behind what the copy has. Nothing new is taken for old, and nothing is skipped.
"""

from __future__ import annotations

import logging
from typing import NamedTuple

from meander.model.errors import InputError
from meander.model.ids import ChannelId
from meander.run.store.commit import Commit, Realign, Renumber
from meander.run.store.incarnations import Incarnation, Lineage, common, newest
from meander.run.store.records.transport import CopyRecord
from meander.run.store.store import Store

_log = logging.getLogger(__name__)


class CopyState(NamedTuple):
    """How far a copy is: the incarnation it has followed, its end, and how far it is processed."""

    incarnation: int
    tail: int
    head: int


class Alignment(NamedTuple):
    """The reaction of a copy to a log that says it is in another incarnation."""

    realign: Realign
    let_go: int
    """Records that were not processed here and that the log has lost."""
    ahead: int
    """Records that were processed here and that the log has lost."""


class GivenAwayError(InputError):
    """A log that would have to make room for its reader, while another host takes it over with the numbers it has."""


def align(store: Store, channel: ChannelId, copy: CopyState, *, is_given_away: bool = False) -> Lineage | None:
    """The lineage of a log, after it made room for a copy that has processed more; None if there is nothing to tell.

    A log that is on its way here from another host says nothing yet: its reader may be ahead of what has arrived. One
    that is given away keeps its numbers, as the other host has some of them: the reader has to ask there.
    """
    with store.lock:
        arriving = store.record(CopyRecord, channel)
        if arriving is not None and arriving.route:
            return None
        log = store.views.channels[channel]
        shared = common(log.lineage, copy.incarnation)
        if shared is None:
            return None
        first = max(shared, log.head)
        if copy.tail == copy.head > first:
            if is_given_away:
                raise GivenAwayError(f"the log of channel {channel} is taken over by another site; ask there")
            _log.warning(
                "the reader of channel %s has processed %s records that were lost here; what is written since gets "
                "numbers behind them",
                channel,
                copy.tail - first,
            )
            store.commit(Commit(renumber=(Renumber(channel, first, copy.tail),)))
        if shared < copy.tail == copy.head <= log.head:  # both have lost something, and nothing in between is left
            return (Incarnation(newest(log.lineage), copy.tail),)
        return log.lineage


def follow(store: Store, channel: ChannelId, lineage: Lineage) -> Alignment | None:
    """The step that brings a copy in line with its log; None if it is. Called with the store's lock held."""
    view = store.views.channels[channel]
    shared = common(lineage, newest(view.lineage))
    if shared is None:
        return None
    cut = min(view.tail, max(shared, view.head))
    follows = lineage if cut <= shared else view.lineage
    if cut == view.tail and follows == view.lineage:
        return None  # the log hears with the next request that it has to make room
    return Alignment(Realign(channel, follows, cut, cut), view.tail - cut, max(0, cut - shared))
