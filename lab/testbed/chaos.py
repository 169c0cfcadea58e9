"""Chaos: schedules of trouble on a test bed while rows come in; then all comes back, and results are compared.

`Chaos` lets schedules happen one after the other on one test bed. Brief ones follow each other without a pause, so that
trouble of one goes on into the next; after every few of them all comes back, and everything that must have come out by
then is waited for and compared.
"""

from __future__ import annotations

import heapq
import itertools
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.client import HTTPException
from pathlib import Path

from lab.testbed import world
from lab.testbed.evidence import keep
from lab.testbed.layout import HOME, layout
from lab.testbed.links import Can
from lab.testbed.process import ENDING_S
from lab.testbed.process_test_bed import ProcessTestBed, ProcessTestBedError, process_test_bed
from lab.testbed.proxies import Proxies
from lab.testbed.schedule import PROXIED, Chances, Trouble, TroubleKind, brief, schedule
from meander.lang.topology.reader import load

ROWS_PER_S = 50.0
BRIEF_S, LONG_S = 2.0, 60.0
"""The length of a brief schedule and of a long one, unless configured."""
COMPARED = 25
"""After so many brief schedules everything is brought back and compared."""
READY_S, FINISH_S = 600.0, 600.0
"""The time that starting everything may take, and the time without a new result after which results count as lost."""
TICK_S = 0.05
SLOW_BYTES_PER_S = 8_000.0
SLOW_DISK_MS = 700
"""The time that each sync takes longer."""
LAG_S, JITTER_S = 0.1, 0.4
BOUNDED = ("--channel-budget", "4KB")
"""So little that a link may be cut for longer than what waits for it has room."""
POLL_S, SETTLED_S = 0.5, 2.0
UP_S = 120.0
"""The time for which trouble that ends a process, or fills its disk, waits for that process to be up."""
NEED_IT_UP = (TroubleKind.KILL, TroubleKind.RESTART, TroubleKind.FULL, TroubleKind.LOSE)
Progress = Callable[[str], None]


@dataclass(slots=True)
class ScheduleOutcome:
    """The outcome of one or several schedules."""

    seeds: list[int]
    rows: int = 0
    done: Counter[str] = field(default_factory=Counter)
    """The number of troubles of each kind."""
    refused: int = 0
    """Moves and links that the coordinator could not take at that moment."""
    verdict: world.Verdict = field(default_factory=lambda: world.Verdict(0, 0, 0, 0))
    recovery_s: float = 0.0
    """From the end of the trouble until the last result was there."""
    standstill_s: float = 0.0
    """The longest time without a new result while some were missing, after the trouble."""
    in_time: bool = True

    @property
    def named(self) -> str:
        return f"seed {self.seeds[0]}" if len(self.seeds) == 1 else f"seeds {self.seeds[0]} to {self.seeds[-1]}"

    def __str__(self) -> str:
        trouble = ", ".join(f"{count} {kind}" for kind, count in sorted(self.done.items())) or "none"
        found = self.verdict
        return (
            f"{self.named}: {trouble}; of {found.expected:,} results lost {found.lost}, double {found.double}, "
            f"wrong {found.wrong}; all there after {self.recovery_s:.0f} s, "
            f"never {self.standstill_s:.1f} s without one"
        )


class Chaos:
    """A test bed with the world in it, on which schedules can be let loose one after the other."""

    def __init__(
        self,
        found: ProcessTestBed,
        rows: world.SensorRows,
        can: Can,
        progress: Progress,
        shared: Path | None = None,
        queries: Collection[str] = tuple(world.QUERIES),
        *,
        widely: bool = False,
    ) -> None:
        """`shared` is where sites write results to that survive them, where they have replicas."""
        self.test_bed, self.rows, self.progress, self._shared = found, rows, progress, shared
        self.queries = queries
        disks, replicas = found.disks is not None, shared is not None
        places = (world.MOVABLE, world.RELINKED)
        self.chances = Chances.of(found.layout, can, *places, disks=disks, replicas=replicas, widely=widely)
        self._undo: list[tuple[float, int, Callable[[], bool]]] = []
        """The times of repairs, each with a function that returns whether it worked."""
        self._numbers = itertools.count()
        self._askers = ThreadPoolExecutor(8, "chaos")
        """Threads for requests: one to a paused coordinator waits, and trouble does not wait for it."""
        self._asked_for: list[Future[bool]] = []

    def run(self, seed: int, plan: Sequence[Trouble], seconds: float, outcome: ScheduleOutcome) -> None:
        """Lets a schedule happen while rows come in. Its damage is repaired in its time, or by `calm`."""
        waiting = list(plan)
        outcome.seeds.append(seed)
        begun, written = time.monotonic(), 0
        while (now := time.monotonic() - begun) < seconds:
            due = round(now * ROWS_PER_S)
            if due > written:
                self.rows.write(due - written)
                written = due
            while waiting and waiting[0].at_s <= now:
                trouble = waiting.pop(0)
                begun += self._wait_for_target(trouble)
                if self.make(trouble):
                    self.progress(str(trouble))
                    outcome.done[trouble.kind] += 1
            self.bring_back(time.monotonic())
            time.sleep(TICK_S)
        outcome.rows = self.rows.count

    def calm(self, outcome: ScheduleOutcome) -> None:
        """Brings everything back."""
        while self._undo:
            self.bring_back(float("inf"))
            time.sleep(TICK_S)
        outcome.refused += sum(not asked.result() for asked in self._asked_for)
        self._asked_for.clear()

    def compare(self, outcome: ScheduleOutcome, *, ended: bool) -> None:
        """Waits until every result is there that has to be, and compares. With `ended` no more rows come."""
        begun = moved = time.monotonic()
        if ended:
            self.rows.end()
        seen = self.verdict(ended)
        while not seen.is_good:
            time.sleep(POLL_S)
            self._check_alive()
            now = self.verdict(ended)
            outcome.standstill_s = max(outcome.standstill_s, time.monotonic() - moved)
            if now != seen:
                seen, moved = now, time.monotonic()
            elif time.monotonic() - moved > FINISH_S:
                outcome.in_time = False
                break
        outcome.recovery_s = time.monotonic() - begun
        if ended:
            time.sleep(SETTLED_S)  # something double could still come
        outcome.verdict = self.verdict(ended)

    def verdict(self, ended: bool) -> world.Verdict:
        total = world.Verdict(0, 0, 0, 0)
        for query in self.queries:
            total = total.plus(world.verdict(query, self.rows.count, self._results(query), ended=ended))
        return total

    def keep(self) -> Path:
        """Keeps what is there for inspection; gives the folder."""
        return keep(self.test_bed, self.queries)

    def results_bytes(self) -> int:
        """The size of all results so far."""
        folders = {self._results(query) for query in self.queries}
        return sum(path.stat().st_size for folder in folders for path in folder.glob("*.jsonl"))

    def _results(self, query: str) -> Path:
        host, _ = world.SINKS[query]
        return self.test_bed.results(host) if host == HOME or self._shared is None else self._shared

    @property
    def is_damaged(self) -> bool:
        """Whether a repair is due later."""
        return bool(self._undo)

    def _check_alive(self) -> None:
        for process in self.test_bed.processes.values():
            if not process.runs:
                raise ProcessTestBedError(
                    f"{process.name} ended by itself; the end of {process.log}:\n{process.last_words()}"
                )

    # ---------------------------------------------------------------- trouble

    def make(self, trouble: Trouble) -> bool:
        """Says whether it could be made."""
        found, links, host = self.test_bed, self.test_bed.links, trouble.target[0]
        process = found.processes.get(host)
        match trouble.kind:
            case TroubleKind.KILL | TroubleKind.RESTART if process is not None:
                if not found.is_up(host):
                    return False
                process.kill() if trouble.kind is TroubleKind.KILL else process.terminate()
                deadline = time.monotonic() + ENDING_S
                self._later(trouble.lasts_s, lambda: self._start(host, deadline))
            case TroubleKind.LOSE:
                if not (found.is_up(host) and found.has_replica(host)):
                    return False
                found.lose(host)
                deadline = time.monotonic() + ENDING_S
                self._later(trouble.lasts_s, lambda: self._start(host, deadline))
            case TroubleKind.PAUSE if process is not None:
                process.pause()
                self._later(trouble.lasts_s, lambda: _done(process.resume))
            case TroubleKind.SHIFT | TroubleKind.JUMP:
                found.shift(host, trouble.shift_ms)
                self._later(trouble.lasts_s, lambda: _done(lambda: found.shift(host, 0)))
            case TroubleKind.SLOW_DISK:
                found.slow_disk(host, SLOW_DISK_MS)
                self._later(trouble.lasts_s, lambda: _done(lambda: found.slow_disk(host, 0)))
            case TroubleKind.FULL:
                if not found.is_up(host):
                    return False
                found.fill(host)
                self._later(trouble.lasts_s, lambda: _done(lambda: found.empty(host)))
            case TroubleKind.CUT if links is not None:
                a, b = trouble.target
                links.cut(a, b)
                self._later(trouble.lasts_s, lambda: _done(lambda: links.mend(a, b)))
            case TroubleKind.MOVE:
                self._asked_for.append(self._askers.submit(self._move, host))
            case TroubleKind.RELINK:
                self._asked_for.append(self._askers.submit(self._relink, *trouble.target))
            case kind if kind in PROXIED and links is not None and links.proxies is not None:
                self._make_between(links.proxies, trouble)
        return True

    def _make_between(self, proxies: Proxies, trouble: Trouble) -> None:
        """Trouble on the way from one host to another."""
        a, b = trouble.target
        match trouble.kind:
            case TroubleKind.BREAK:
                proxies.break_off(a, b)
            case TroubleKind.HALF_OPEN:
                proxies.leave_half_open(a, b)
            case TroubleKind.SLOW:
                proxies.throttle(a, b, SLOW_BYTES_PER_S)
                self._later(trouble.lasts_s, lambda: _done(lambda: proxies.throttle(a, b, None)))
            case TroubleKind.LAG:
                proxies.delay(a, b, LAG_S, JITTER_S)
                self._later(trouble.lasts_s, lambda: _done(lambda: proxies.delay(a, b, 0.0, 0.0)))
            case TroubleKind.ONE_WAY:
                proxies.close_to(a, b, closed=True)
                self._later(trouble.lasts_s, lambda: _done(lambda: proxies.close_to(a, b, closed=False)))
            case TroubleKind.MUTE:
                proxies.mute(a, b, mute=True)
                self._later(trouble.lasts_s, lambda: _done(lambda: proxies.mute(a, b, mute=False)))

    def _wait_for_target(self, trouble: Trouble) -> float:
        """Lets a process come up that is to be ended: otherwise it might never get to run. Gives for how long."""
        begun = time.monotonic()
        kind, host = trouble.kind, trouble.target[0]
        while kind in NEED_IT_UP and time.monotonic() - begun < UP_S:
            if self.test_bed.is_up(host) and (kind is not TroubleKind.LOSE or self.test_bed.has_replica(host)):
                break
            self.bring_back(time.monotonic())
            time.sleep(TICK_S)
        return time.monotonic() - begun

    def _start(self, host: str, deadline: float) -> bool:
        """Starts a process that was ended, as soon as it has and can; one that does not end in time is killed."""
        process = self.test_bed.processes[host]
        if process.runs and time.monotonic() > deadline:
            self.progress(f"{host} does not end; it is killed")
            process.kill()
        if process.runs or self.test_bed.is_full(host):
            return False
        process.start()
        return True

    def _later(self, after_s: float, what: Callable[[], bool]) -> None:
        heapq.heappush(self._undo, (time.monotonic() + after_s, next(self._numbers), what))

    def bring_back(self, now: float) -> None:
        """Makes the repairs that are due; failed ones are tried again."""
        again = []
        while self._undo and self._undo[0][0] <= now:
            entry = heapq.heappop(self._undo)
            if not entry[2]():
                again.append(entry)
        for entry in again:
            heapq.heappush(self._undo, entry)

    def _move(self, node: str) -> bool:
        """Moves the aggregate, which has a memory; somewhere else if it is there already."""
        found = self.test_bed.get("/queries/counts")
        operators = found["dag"]["operators"] if found else []
        chosen = [o for o in operators if "aggregate" in o["kind"]]
        if not chosen:
            return False
        if chosen[0].get("node") == node:
            node = world.MOVABLE[(world.MOVABLE.index(node) + 1) % len(world.MOVABLE)]
        return self._asked("POST", "/moves", {"operator": chosen[0]["id"], "node": node})

    def _relink(self, node: str, one: str, other: str) -> bool:
        """A device goes to another base station: both events at once, so that it is never without a way."""
        found = self.test_bed.get("/topology")
        links = [{k["a"], k["b"]} for k in (found["links"] if found else ())]
        neighbours = {end for ends in links if node in ends for end in ends}
        if not neighbours & {one, other}:
            return False
        old, new = (one, other) if one in neighbours else (other, one)
        events = [
            {"event": "link_removed", "source": node, "target": old},
            {"event": "link_added", "source": node, "target": new, "latency_ms": 1},
        ]
        return self._asked("POST", "/events", {"events": events})

    def _asked(self, method: str, path: str, body: dict[str, object]) -> bool:
        with suppress(OSError, HTTPException, ValueError):
            return self.test_bed.ask(method, path, body)[0] < 300
        return False


def _done(what: Callable[[], None]) -> bool:
    what()
    return True


@dataclass(frozen=True, slots=True)
class Plan:
    """The schedules that run on one test bed, and their parameters."""

    seeds: Sequence[int]
    seconds: float
    every_s: float | None = None
    """The interval of trouble in a long schedule; None for brief ones."""
    compared: int = COMPARED

    def of(self, seed: int, chances: Chances) -> list[Trouble]:
        if self.every_s is None:
            return brief(seed, self.seconds, chances)
        return schedule(seed, self.seconds, chances, self.every_s)


@contextmanager
def world_on_a_bed(
    directory: Path,
    can: Can,
    progress: Progress,
    *,
    session_timeout_ms: int = 3_000,
    disks: bool = False,
    replicas: bool = False,
    widely: bool = False,
    queries: Mapping[str, str] = world.QUERIES,
) -> Iterator[Chaos]:
    """A test bed on which the queries run. With `replicas` sites have some, and their disks are lost, too; `widely` is
    as in `Chances`."""
    topology = world.write_world(directory, replicas=replicas)
    places = layout(load(topology).topology, {site: list(nodes) for site, nodes in world.SITES.items()})
    with process_test_bed(
        directory / "bed",
        topology,
        places,
        can,
        session_timeout_ms=session_timeout_ms,
        disks=disks,
        arguments=(*BOUNDED, "--functions", world.FUNCTIONS),
    ) as found:
        found.wait_ready(READY_S, progress)
        for name, text in queries.items():
            status, body = found.ask("POST", "/queries", {"text": text, "name": name})
            if status >= 300:
                raise ProcessTestBedError(f"query {name!r} was not taken: {body}")
        progress("deploying")
        found.wait_settled(queries, READY_S)
        shared = world.shared_results(directory) if replicas else None
        yield Chaos(found, world.SensorRows(directory), can, progress, shared, tuple(queries), widely=widely)
        found.kill()  # everything is compared: nobody needs to leave in order


def run(
    directory: Path,
    plan: Plan,
    can: Can,
    progress: Progress,
    *,
    session_timeout_ms: int = 3_000,
    disks: bool = False,
    replicas: bool = False,
    widely: bool = False,
    queries: Mapping[str, str] = world.QUERIES,
) -> list[ScheduleOutcome]:
    """Schedules one after the other on one test bed; gives an outcome for each time that results were compared.

    It ends with the first one that is not good: what comes after it would say nothing. Results that are there then are
    kept.
    """
    options = {"session_timeout_ms": session_timeout_ms, "disks": disks, "replicas": replicas, "widely": widely}
    with world_on_a_bed(directory, can, progress, **options, queries=queries) as chaos:  # type: ignore[arg-type]
        outcomes: list[ScheduleOutcome] = []
        begun = time.monotonic()
        for first in range(0, len(plan.seeds), plan.compared):
            seeds = plan.seeds[first : first + plan.compared]
            outcomes.append(outcome := ScheduleOutcome([]))
            for seed in seeds:
                progress(f"seed {seed}, {time.monotonic() - begun:.0f} s after the beginning")
                chaos.run(seed, plan.of(seed, chaos.chances), plan.seconds, outcome)
            chaos.calm(outcome)
            progress(f"comparing with the oracle, {time.monotonic() - begun:.0f} s after the beginning")
            try:
                chaos.compare(outcome, ended=seeds[-1] == plan.seeds[-1])
            except ProcessTestBedError as error:
                raise ProcessTestBedError(f"{error}\nall of it is kept in {chaos.keep()}") from None
            progress(str(outcome))
            if not outcome.verdict.is_good:
                progress(f"{outcome.named}: all of it is kept in {chaos.keep()}")
                break
        return outcomes
