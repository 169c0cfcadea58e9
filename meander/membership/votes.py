"""The votes of a site: whether a standby may take over from the coordinator that the site has listened to.

A standby needs the votes of most sites, and a site that has voted for it refuses the coordinator before: no two can
act. A site does not vote while it hears the coordinator, nor for a standby that may lack something: each time a standby
begins to follow, or is not waited for any more, a new term begins, which most sites remember before it counts.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from meander.membership.fence import Fence, FencedError
from meander.membership.protocol import Epoch
from meander.model.durable_files import FILES

_log = logging.getLogger(__name__)
SILENT_S = 3.0
"""A coordinator that was heard of since then needs no successor."""


class StandbyVotes:
    """Those of one site; what the coordinator said of standbys is kept in a file."""

    def __init__(self, fence: Fence, path: Path, silent_s: Callable[[], float]) -> None:
        """`silent_s` says how long the coordinator was not heard of."""
        self._fence, self._path, self._silent_s = fence, path, silent_s
        found = _read(path)
        self.term = int(found.get("term", 0))
        """The newest term that was heard of."""
        self.coordinators: tuple[str, ...] = tuple(str(each) for each in found.get("coordinators", ()))
        """The addresses of the coordinator and its standby."""

    def heard(self, told: Mapping[str, Any]) -> None:
        """The coordinator says what term it is, and where it and its standby are; remembered when this returns."""
        term, coordinators = int(told["term"]), tuple(str(each) for each in told["coordinators"])
        if term >= self.term and (term, coordinators) != (self.term, self.coordinators):
            FILES.replace(self._path, json.dumps({"term": term, "coordinators": coordinators}).encode())
            self.term, self.coordinators = term, coordinators

    def vote(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """The answer to a standby; a vote that is given is kept by the fence. `would` asks without giving one."""
        epoch, silent_s, newest = Epoch.of_json(asked), self._silent_s(), self._fence.newest
        if newest is not None and epoch.number <= newest.number and epoch != newest:
            return _refused(f"it listens to a coordinator of epoch {newest.number}")
        if int(asked["term"]) < self.term:
            return _refused("the standby may lack something: it was not in sync any more")
        if silent_s < SILENT_S and epoch != newest:
            return _refused(f"it heard the coordinator {silent_s:.1f} s ago")
        if not asked.get("would"):
            try:
                self._fence.accept(epoch)
            except FencedError as error:
                return _refused(str(error))
            _log.warning(
                "voted for a standby of epoch %d: the coordinator is silent for %.1f s", epoch.number, silent_s
            )
        return {"granted": True}


def _refused(reason: str) -> dict[str, Any]:
    return {"granted": False, "reason": reason}


def _read(path: Path) -> Mapping[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
