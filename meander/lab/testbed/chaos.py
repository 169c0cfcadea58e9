"""Chaos: a schedule of trouble on a test bed while rows come in; then all comes back, and results are compared."""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from http.client import HTTPException
from pathlib import Path

from meander.lab.testbed import world
from meander.lab.testbed.bed import Bed, BedError, bed
from meander.lab.testbed.layout import layout
from meander.lab.testbed.schedule import Chances, Kind, Trouble, schedule
from meander.lab.testbed.wires import Can, Wires
from meander.lang.topology_file import load

ROWS_PER_S = 50.0
READY_S, FINISH_S = 300.0, 300.0
"""How long everything may take to come up, and results may take without a new one before they count as lost."""
TICK_S = 0.05
SLOW_MBPS = 1.0
LOOK_S, SETTLED_S = 0.5, 2.0
Progress = Callable[[str], None]


@dataclass(slots=True)
class Outcome:
    """What came of one schedule."""

    seed: int
    rows: int
    done: dict[str, int] = field(default_factory=dict)
    """How often each kind of trouble was made."""
    refused: int = 0
    """Moves and links that the coordinator could not take at that moment."""
    verdict: world.Verdict = field(default_factory=lambda: world.Verdict(0, 0, 0, 0))
    recovery_s: float = 0.0
    """From the end of the trouble until the last result was there."""
    in_time: bool = True


class Chaos:
    """A test bed with the world in it, on which schedules can be let loose one after the other."""

    def __init__(self, found: Bed, rows: world.Rows, can: Can, progress: Progress) -> None:
        self.bed, self.rows, self.can, self.progress = found, rows, can, progress
        self._undo: list[tuple[float, int, Callable[[], None]]] = []
        self._askers = ThreadPoolExecutor(8, "chaos")
        """Whoever asks a coordinator that is paused waits; trouble does not wait for that."""
        self._asked_for: list[Future[bool]] = []

    def plan(self, seed: int, seconds: float, every_s: float = 3.0) -> list[Trouble]:
        chances = Chances.of(self.bed.layout, self.can, world.MOVABLE, world.RELINKED)
        return schedule(seed, seconds, chances, every_s)

    def run(self, seed: int, seconds: float, every_s: float = 3.0) -> Outcome:
        """Lets a schedule happen while rows come in, and brings everything back."""
        waiting = self.plan(seed, seconds, every_s)
        outcome = Outcome(seed, self.rows.count)
        begun, written = time.monotonic(), 0
        while (now := time.monotonic() - begun) < seconds:
            due = round(now * ROWS_PER_S)
            if due > written:
                self.rows.write(due - written)
                written = due
            while waiting and waiting[0].at_s <= now:
                self._make(waiting.pop(0), now, outcome)
            self._bring_back(now)
            time.sleep(TICK_S)
        self._bring_back(float("inf"))
        outcome.rows = self.rows.count
        outcome.refused = sum(not asked.result() for asked in self._asked_for)
        self._asked_for.clear()
        return outcome

    def finish(self, outcome: Outcome) -> Outcome:
        """Ends the rows, waits until every result is there, and compares."""
        begun = moved = time.monotonic()
        self.rows.end()
        seen = self._compare()
        while not seen.is_good:
            time.sleep(LOOK_S)
            now = self._compare()
            if now != seen:
                seen, moved = now, time.monotonic()
            elif time.monotonic() - moved > FINISH_S:
                outcome.in_time = False
                break
        time.sleep(SETTLED_S)  # something double could still come
        outcome.verdict, outcome.recovery_s = self._compare(), time.monotonic() - begun - SETTLED_S
        return outcome

    def _compare(self) -> world.Verdict:
        total = world.Verdict(0, 0, 0, 0)
        for query, (host, _) in world.SINKS.items():
            total = total.plus(world.verdict(query, self.rows.count, self.bed.results(host)))
        return total

    # ---------------------------------------------------------------- trouble

    def _make(self, trouble: Trouble, now: float, outcome: Outcome) -> None:
        self.progress(str(trouble))
        outcome.done[trouble.kind] = outcome.done.get(trouble.kind, 0) + 1
        processes, wires = self.bed.processes, self.bed.wires
        match trouble.kind:
            case Kind.KILL:
                process = processes[trouble.target[0]]
                process.kill()
                self._later(now + trouble.lasts_s, lambda: None if process.runs else process.start())
            case Kind.PAUSE:
                process = processes[trouble.target[0]]
                process.pause()
                self._later(now + trouble.lasts_s, process.resume)
            case Kind.CUT if wires is not None:
                a, b = trouble.target
                wires.cut(a, b)
                self._later(now + trouble.lasts_s, lambda: wires.mend(a, b))
            case Kind.SLOW if wires is not None:
                a, b = trouble.target
                wires.slow(a, b, SLOW_MBPS)
                self._later(now + trouble.lasts_s, lambda: wires.slow(a, b, None))
            case Kind.MOVE:
                self._asked_for.append(self._askers.submit(self._move, trouble.target[0]))
            case Kind.RELINK:
                self._asked_for.append(self._askers.submit(self._relink, *trouble.target))

    def _later(self, at_s: float, what: Callable[[], None]) -> None:
        heapq.heappush(self._undo, (at_s, len(self._undo) + int(at_s * 1000) * 1000, what))

    def _bring_back(self, now: float) -> None:
        while self._undo and self._undo[0][0] <= now:
            heapq.heappop(self._undo)[2]()

    def _move(self, node: str) -> bool:
        """Moves the aggregate, which has a memory."""
        found = self.bed.get("/queries/counts")
        operators = found["dag"]["operators"] if found else []
        chosen = [o["id"] for o in operators if "aggregate" in o["kind"]]
        return bool(chosen) and self._asked("POST", "/moves", {"operator": chosen[0], "node": node})

    def _relink(self, node: str, old: str, new: str) -> bool:
        """A device goes to another base station: both events at once, so that it is never without a way."""
        events = [
            {"event": "link_removed", "source": node, "target": old},
            {"event": "link_added", "source": node, "target": new, "latency_ms": 1},
        ]
        return self._asked("POST", "/events", {"events": events})

    def _asked(self, method: str, path: str, body: dict[str, object]) -> bool:
        with suppress(OSError, HTTPException, ValueError):
            return self.bed.ask(method, path, body)[0] < 300
        return False


def run(
    directory: Path,
    seeds: list[int],
    seconds: float,
    can: Can,
    progress: Progress,
    patience_ms: int = 3_000,
    every_s: float = 3.0,
) -> list[Outcome]:
    """Schedules one after the other on one test bed; the results of all of them are compared at the end."""
    topology = world.write_world(directory)
    places = layout(load(topology).topology, {site: list(nodes) for site, nodes in world.SITES.items()})
    wires = Wires(places, can) if Can.CUT in can else None
    with bed(directory / "bed", topology, places, wires, patience_ms) as found:
        found.wait_ready(READY_S, progress)
        for name, text in world.QUERIES.items():
            status, body = found.ask("POST", "/queries", {"text": text, "name": name})
            if status >= 300:
                raise BedError(f"query {name!r} was not taken: {body}")
        progress("deploying")
        found.wait_settled(world.QUERIES, READY_S)
        chaos = Chaos(found, world.Rows(directory), can, progress)
        outcomes = []
        for seed in seeds:
            progress(f"seed {seed}: {seconds:g} s of trouble")
            outcomes.append(chaos.run(seed, seconds, every_s))
        progress("everything comes back; comparing with the oracle")
        chaos.finish(outcomes[-1])
        return outcomes
