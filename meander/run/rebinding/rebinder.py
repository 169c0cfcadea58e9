"""The rebinder of a host: looks at the loads now and then, asks the policy, and lets its decision get into force."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack

import numpy as np

from meander.model.ids import FragmentId
from meander.run.fragments.rebind_requests import Requests
from meander.run.fragments.routing import Routing
from meander.run.periodic import PeriodicThread
from meander.run.rebinding.options import Installing, RebindingOptions
from meander.run.rebinding.policies import policy
from meander.run.rebinding.shared_queue import SharedQueue
from meander.run.step.measures import StepMeasures
from meander.run.step.step_lock import StepLock
from meander.run.store.store import Store


class Rebinder(PeriodicThread):
    """`look` does it once; `start` does it every period until `stop`."""

    def __init__(
        self, options: RebindingOptions, store: Store, routing: Routing, step_locks: Sequence[StepLock]
    ) -> None:
        super().__init__("rebinder", options.period_s, self.look)
        self.options, self.store, self.routing, self.step_locks = options, store, routing, step_locks
        self.policy = policy(options.policy)
        self.measures = StepMeasures(options.window)
        pulls = self.policy.pulls
        self.requests = SharedQueue(routing, store.exchange, step_locks) if pulls else Requests(routing)
        self.looks = self.moves = 0
        self.seconds = 0.0
        """Time spent on looking and deciding."""
        self._rng = np.random.default_rng(options.seed)

    def look(self) -> dict[FragmentId, int]:
        """Decides, and installs the decisions. Gives the fragments that are to change slots."""
        started = time.perf_counter()
        loads = self.measures.look(self.routing, self.store.exchange).with_moves(self.requests.under_way())
        wanted = self.policy.decide(loads, self.routing.slots, self._rng)
        changed = np.flatnonzero(wanted != loads.bound).tolist()
        moves = {FragmentId(int(loads.fragments[i])): int(wanted[i]) for i in changed}
        self.seconds += time.perf_counter() - started
        self.looks += 1
        self.moves += len(moves)
        if moves:
            self.install(moves)
        return moves

    def install(self, moves: dict[FragmentId, int]) -> None:
        """Lets a binding get into force."""
        if self.options.installing is Installing.NON_BLOCKING:
            self.requests.ask(moves)
        else:
            with ExitStack() as barrier:
                for step_lock in self.step_locks:
                    barrier.enter_context(step_lock)
                known = self.routing.fragments
                self.routing.rebind({f: slot for f, slot in moves.items() if f in known})
        self.store.wake_readers()
