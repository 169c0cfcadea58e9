"""Reconciliation: what a coordinator that was restored from a backup and the sites, which went on, disagree about.

What runs at a site is compared with what the backup says should run there, as `meander doctor` does, once the site is
here and until both agree. Where nothing was submitted, stopped or moved since the backup they do, and channels find
their common positions by themselves. Anything else cannot be told from the backup: it is named, with the remedy.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import TimeoutError as NotInTime
from http import HTTPStatus

from meander.coordinator.backup.restoring import Restoration
from meander.coordinator.core.commands import ANSWER_S, CoreTask
from meander.coordinator.core.core import Core
from meander.coordinator.doctor import Examination, Inventories, diagnose, examine
from meander.model.errors import InputError

_log = logging.getLogger(__name__)
LOOK_S = 2.0


class Reconciliation:
    """Looks at each site until it agrees; has a thread for that."""

    def __init__(self, restored: Restoration, inventories: Callable[[Sequence[str]], Inventories]) -> None:
        self._restored, self._inventories = restored, inventories
        self._disagreeing: dict[str, Sequence[str]] = {}
        self._agreed: set[str] = set()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, core: Core, present: Callable[[], Collection[str]]) -> None:
        self._thread = threading.Thread(target=self._run, args=(core, present), name="reconciliation", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        if self._thread is not None:
            self._thread.join()

    def problems(self) -> Mapping[str, tuple[str, ...]]:
        """The disagreement of each site, in words."""
        return {site: (self._described(site, found),) for site, found in list(self._disagreeing.items())}

    def _described(self, site: str, found: Sequence[str]) -> str:
        made = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(self._restored.made_ms / 1000))
        more = f", and {len(found) - 1} more (`meander doctor`)" if len(found) > 1 else ""
        return (
            f"what runs there is not what the backup of {made} says: {found[0]}{more}; submit queries that are missing "
            f"again, stop the site, run `meander site forget {site}`, and start it with a new directory: what it had "
            "since the backup is lost"
        )

    def _run(self, core: Core, present: Callable[[], Collection[str]]) -> None:
        while not self._stopping.wait(LOOK_S):
            sites = [site for site in present() if site not in self._agreed]
            try:
                self._look(core, sites)
            except (InputError, NotInTime) as error:
                _log.info("sites cannot be compared with the backup now: %s", error)
            except Exception:
                _log.exception("comparing sites with the backup failed; it is tried again")

    def _look(self, core: Core, sites: Sequence[str]) -> None:
        if not sites:
            return
        found = diagnose(lambda: self._once(core, sites))
        for site in sites:
            differences = [f.what for f in found.findings if f.where == f"site {site}"]
            if site in found.unasked:
                continue
            if not differences:
                self._agreed.add(site)
                self._disagreeing.pop(site, None)
                _log.info("site %s runs what the backup says", site)
            elif site not in self._disagreeing:
                _log.warning("site %s: %s", site, self._described(site, differences))
            if differences:
                self._disagreeing[site] = differences

    def _once(self, core: Core, sites: Sequence[str]) -> Examination:
        elsewhere = self._inventories(sites)
        examination: Examination = core.ask(CoreTask(lambda core: (HTTPStatus.OK, examine(core, elsewhere)))).result(
            ANSWER_S
        )[1]
        return examination
