"""Quarantine: operators that failed wait by themselves, so that everything beside and above them goes on.

A fragment that data has broken is paused as a whole, as is one whose worker ends again and again. Here it is split: the
operators that failed, and those behind them in that fragment, get a fragment of their own, which stays paused with its
input kept, or is tried again by itself; the others run for their other readers. When the failed ones go on, and have
caught up, they may join their neighbours again. The decisions are entries of `Placed.apart`; the deployer makes
reconfigurations of them, as of any other change.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from meander.deploy.deployer import Deployer
from meander.deploy.fragments import Fragment
from meander.model.errors import InputError
from meander.model.ids import FragmentId, OperatorId
from meander.run.fragments.routing import Pause
from meander.run.host import FEW_TUPLES, Host
from meander.run.store.commit import Commit
from meander.run.store.journal import JournalError
from meander.run.store.records.decisions import QuarantineRecord
from meander.run.store.records.record import forget

FAILED, BESIDE = "failed", "beside failed"
"""The prefixes of group names: of operators that failed, and of those that shared a fragment with them until now."""
WELL_S = 5.0
"""The time without a reported pause after which a site's fragments count as well: sites report every second."""


@dataclass(slots=True)
class Remote:
    """The known state of fragments that run at sites."""

    pauses: Mapping[tuple[FragmentId, int], Pause] = field(default_factory=dict)
    """By fragment and version."""
    behind: frozenset[FragmentId] = frozenset()
    """The fragments for which more than a few tuples wait."""
    heard: frozenset[FragmentId] = frozenset()
    """The fragments whose sites are there now."""


class OperatorQuarantine:
    """Examines pauses; `tick` names operators that have to be grouped anew."""

    def __init__(
        self,
        host: Host,
        deployer: Deployer,
        runs_here: Callable[[FragmentId], bool],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.host, self.deployer, self._runs_here, self._clock = host, deployer, runs_here, clock
        self.remote: Callable[[], Remote] = Remote
        self._progress: dict[FragmentId, int] = {}
        """The read positions of resumed fragments when they were first seen."""
        self._well: dict[FragmentId, float] = {}
        """Since when fragments at sites are not said to be paused."""
        self._saved: dict[OperatorId, str] = {}
        self.pauses: Mapping[FragmentId, Pause] = {}
        """All pauses, here and at sites, as of the last poll."""

    def restore(self) -> None:
        """Keeps separated operators apart until it is known how they do."""
        saved = self.host.store.record(QuarantineRecord)
        self._saved = {} if saved is None else dict(saved.groups)
        for operator, name in self._saved.items():
            self.deployer.placed.apart.setdefault(operator, name)

    def tick(self) -> set[OperatorId]:
        """Sets operators apart that failed, and lets those join others that do well again; gives both."""
        remote = self.remote()
        self.pauses = {**self._known(remote), **self.host.routing.pauses}
        changed = self._set_apart({f: p for f, p in self.pauses.items() if p.sets_apart})
        changed |= self._release(self.pauses, remote)
        self.deployer.failing = frozenset(self._mine())
        self._save()
        return changed

    def _known(self, remote: Remote) -> dict[FragmentId, Pause]:
        """The pauses that sites report, as far as they concern fragments that run there now."""
        running = {f: self._running(f) for f, _ in remote.pauses}
        return {
            f: pause
            for (f, version), pause in remote.pauses.items()
            if (found := running[f]) is not None and found.version == version and not self._runs_here(f)
        }

    def _mine(self) -> dict[OperatorId, str]:
        return {o: name for o, name in self.deployer.placed.apart.items() if name.startswith((FAILED, BESIDE))}

    # ---------------------------------------------------------------- setting apart

    def struck(self, number: FragmentId, pause: Pause) -> set[OperatorId]:
        """Operators of a paused fragment that failed themselves, or read failed ones: the others are only beside it."""
        fragment = self._running(number)
        if fragment is None:
            return set()
        failing = pause.operators & set(fragment.operators)
        return self._with_followers(fragment, failing or frozenset(fragment.operators))

    def _set_apart(self, pauses: Mapping[FragmentId, Pause]) -> set[OperatorId]:
        apart, changed = self.deployer.placed.apart, set[OperatorId]()
        for number, pause in pauses.items():
            fragment = self._running(number)
            failing = pause.operators & set(fragment.operators) if fragment else frozenset()
            if fragment is None or (pause.operators and not failing):
                continue
            group = self._with_followers(fragment, failing or frozenset(fragment.operators))
            if not group:
                continue
            number_of = min(failing or group)
            for operator in (o for o in fragment.operators if o in self.deployer.placed.plan.operators):
                # Healthy operators must not join others before the fragment is split: that one cannot be drained.
                name = f"{FAILED if operator in group else BESIDE} {number_of}"
                if apart.get(operator, FAILED).startswith((FAILED, BESIDE)) and apart.get(operator) != name:
                    apart[operator] = name
                    changed.add(operator)
        return changed

    def _running(self, number: FragmentId) -> Fragment | None:
        """The fragment as it runs now: changes in flight have not taken effect."""
        for each in self.deployer.under_way.values():
            if number in each.change.fragments_before:
                return each.change.fragments_before[number]
        return self.deployer.deployment.fragments.get(number)

    def _with_followers(self, fragment: Fragment, failing: frozenset[OperatorId]) -> set[OperatorId]:
        """Operators of a fragment that failed, and all that read them there and are in the plan."""
        plan, inside = self.deployer.placed.plan, set(fragment.operators)
        found = {o for o in failing if o in plan.operators}
        stack = list(found)
        while stack:
            fresh = [r for r in plan[stack.pop()].readers if r in inside and r not in found]
            found.update(fresh)
            stack.extend(fresh)
        return found

    # ---------------------------------------------------------------- letting go

    def _release(self, pauses: Mapping[FragmentId, Pause], remote: Remote) -> set[OperatorId]:
        plan, owner = self.deployer.placed.plan, self.deployer.deployment.owner
        groups: dict[str, set[OperatorId]] = {}
        for operator, name in self._mine().items():
            groups.setdefault(name, set()).add(operator)
        changed = set[OperatorId]()
        for name, members in groups.items():
            left = {o for o in members if o not in plan.operators}
            fragments = {owner[o] for o in members - left if o in owner}
            if name.startswith(BESIDE):
                over = not fragments & (set(pauses) | self._on_their_way())
            else:
                over = self._do_well(fragments, pauses, remote)
            if over or left == members:
                left = members
            changed |= left & plan.operators.keys()
            for operator in left:
                del self.deployer.placed.apart[operator]
        return changed

    def _do_well(self, fragments: Iterable[FragmentId], pauses: Mapping[FragmentId, Pause], remote: Remote) -> bool:
        wanted = set(fragments)
        if wanted & set(pauses) or wanted & self._on_their_way():
            self._progress = {f: at for f, at in self._progress.items() if f not in wanted}
            self._well = {f: since for f, since in self._well.items() if f not in wanted}
            return False
        return all(self._caught_up(f) if self._runs_here(f) else self._does_well(f, remote) for f in wanted)

    def _does_well(self, fragment: FragmentId, remote: Remote) -> bool:
        """Whether a fragment at a site has not been paused for a while, and has caught up."""
        if fragment not in remote.heard or fragment in remote.behind:
            self._well.pop(fragment, None)
            return False
        if self._clock() - self._well.setdefault(fragment, self._clock()) < WELL_S:
            return False
        del self._well[fragment]
        return True

    def _on_their_way(self) -> set[FragmentId]:
        return {f for each in self.deployer.under_way.values() for f in each.change.fragments}

    def _caught_up(self, fragment: FragmentId) -> bool:
        """Whether a fragment has read something since it goes on, and few tuples are left."""
        installed, exchange = self.host.routing.fragments.get(fragment), self.host.store.exchange
        with suppress(InputError):  # a channel may end between two looks
            ports = installed.ports if installed is not None else ()
            at = sum(exchange.start(p) for p in ports)
            waiting = sum(exchange.counters(p).pending_tuples for p in ports)
            before = self._progress.setdefault(fragment, at)
            if installed is not None and waiting <= FEW_TUPLES and (at > before or not waiting):
                del self._progress[fragment]
                return True
        return False

    # ---------------------------------------------------------------- remembering

    def _save(self) -> None:
        mine = self._mine()
        if mine != self._saved:
            with suppress(JournalError):  # for want of room: the next look tries again
                changed = QuarantineRecord(mine) if mine else forget(QuarantineRecord, None)
                self.host.store.commit(Commit(records=(changed,)))
                self._saved = mine
