"""Retries: fragments whose last step failed through no fault of theirs, and the schedule of their next tries.

A failure of the infrastructure is tried again after a pause that doubles each time, up to a limit; nothing has to be
resumed by hand. Input that did not fit into memory is read in smaller portions from then on, by the fragments of that
template only. All other fragments go on meanwhile. A worker that ends again and again, or memory that never suffices,
may be the fault of one operator: from the second time on it is searched for (see `step`), so that the other operators
of its fragment go on.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from meander.model.ids import FragmentId, OperatorId
from meander.model.locks import lock
from meander.run.failures import Failure
from meander.run.fragments.routing import Installed, Pause, Routing

_log = logging.getLogger(__name__)
FIRST_PAUSE_S, LONGEST_PAUSE_S, MOST_DOUBLINGS = 0.5, 30.0, 10
PAUSE_PER_TRY = 9
"""The least ratio of the pause to the time of a try, where an operator may be to blame: a function that never
returns leaves most of its slot's time to others."""
SMALLER = 4
"""The divisor of the tuples that a step reads after one that did not fit."""


class Retries:
    """Of one stepper's fragments; steps of several slots may run at the same time."""

    def __init__(self, routing: Routing, clock: Callable[[], float]) -> None:
        self.routing, self.clock = routing, clock
        self._tries: dict[FragmentId, int] = {}
        self._most_rows: dict[str, int] = {}
        self._lock = lock("retries")

    def most_rows(self, template: str, usual: int) -> int:
        """Tuples that a step of a template's fragments reads at most."""
        return min(usual, self._most_rows.get(template, usual))

    def reads_less(self, template: str) -> bool:
        """Whether the template's fragments read less than others."""
        return template in self._most_rows

    def read_less(self, template: str, usual: int, least: int) -> bool:
        """Lets the template's fragments read less from now on; says whether they can."""
        before = self.most_rows(template, usual)
        self._most_rows[template] = max(least, before // SMALLER)
        return before > least

    def is_to_be_looked_into(self, fragments: Iterable[Installed], failure: Failure) -> bool:
        """Whether it is time to find out which fragments, and which of their operators, fail."""
        return failure.may_be_an_operators and any(f.fragment in self._tries for f in fragments)

    def put_off(
        self,
        fragments: Iterable[Installed],
        failure: Failure,
        operators: frozenset[OperatorId] = frozenset(),
        took_s: float = 0.0,
    ) -> None:
        """Fragments are tried again later, and later each time.

        `operators` are those that failed, if that is known; `took_s` is how long it took to fail.
        """
        numbers = [f.fragment for f in fragments]
        known = self.routing.fragments
        with self._lock:
            tried = 1 + max(self._tries.get(f, 0) for f in numbers)
            self._tries = {f: n for f, n in self._tries.items() if f in known} | dict.fromkeys(numbers, tried)
        pause_s = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2 ** min(tried - 1, MOST_DOUBLINGS))
        if failure.may_be_an_operators and tried > 1:
            pause_s = max(pause_s, round(PAUSE_PER_TRY * took_s))
        why = f"{failure.reason} ({failure.cause.value}; tried {tried} times, and again after {pause_s:g} s)"
        self.routing.pause_all(numbers, Pause(why, failure.cause, operators, self.clock() + pause_s))
        if tried == 1:
            _log.warning("fragments %s are tried again later: %s", _shown(numbers), failure.reason)

    def did_well(self, fragments: Iterable[Installed]) -> None:
        """A step of these fragments ended as it should."""
        if self._tries:
            well = {f.fragment for f in fragments}
            with self._lock:
                self._tries = {f: n for f, n in self._tries.items() if f not in well}


def _shown(numbers: list[FragmentId]) -> str:
    return ", ".join(map(str, numbers[:5])) + (f" and {len(numbers) - 5} more" if len(numbers) > 5 else "")
