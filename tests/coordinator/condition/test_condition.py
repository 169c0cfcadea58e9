"""One definition of how a query and the service are doing: the worst that is known, always with the reason."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meander.coordinator.condition.condition import (
    IDLE_MS,
    MOST_PROBLEMS,
    STALLED_MS,
    Condition,
    QueryFacts,
    ServiceFacts,
    Status,
    Stuck,
    missed,
    query_condition,
    service_condition,
    span,
    without_numbers,
)
from meander.lang.demands import parse_demands

(LATENCY,) = parse_demands("latency < 100 ms")
(OFTEN,) = parse_demands("frequency >= 4 /s")
STUCK = Stuck("behind operator 3 (filter)", 120, STALLED_MS)

CASES = {
    "nothing is known against it": (QueryFacts(), Status.RUNNING, ""),
    "it is stopped": (QueryFacts(is_stopping=True, paused=("x",)), Status.STOPPING, "finished first"),
    "a function cannot be imported": (QueryFacts(paused=("No module named 'f'",)), Status.PAUSED, "No module"),
    "there is no route": (QueryFacts(waiting=("no route from a to b",)), Status.WAITING, "no route"),
    "several things are missing": (QueryFacts(waiting=("no place", "no route")), Status.WAITING, "(and 1 more)"),
    "input waits and is not taken": (QueryFacts(stuck=(STUCK,)), Status.STALLED, "120 tuples wait behind operator 3"),
    "input waits for a moment": (QueryFacts(stuck=(Stuck("x", 9, STALLED_MS - 1),)), Status.RUNNING, ""),
    "a slot cannot run": (QueryFacts(stuck=(STUCK,), trouble="slot 0 ended"), Status.STALLED, "taken; slot 0 ended"),
    "a demand is missed 17-fold": (QueryFacts(missed=((LATENCY, 1_700.0),)), Status.VIOLATING, "17 times as much"),
    "its windows wait for one source": (
        QueryFacts(missed=((LATENCY, 9e4),), waits_for="its windows have waited for s1"),
        Status.VIOLATING,
        "latency < 100 ms is missed: 90000 ms, 900 times as much; its windows have waited for s1",
    ),
    "its sources are quiet": (QueryFacts(quiet_ms=IDLE_MS), Status.IDLE, "have given nothing for more than 10 s"),
    "its sources are quiet, but not it": (QueryFacts(quiet_ms=IDLE_MS, pending=1), Status.RUNNING, ""),
    "its sources paused for breath": (QueryFacts(quiet_ms=IDLE_MS - 1), Status.RUNNING, ""),
}


@pytest.mark.parametrize("case", list(CASES))
def test_a_condition_and_its_reason(case: str) -> None:
    facts, status, words = CASES[case]
    found = query_condition(facts)
    assert found.status is status
    assert words in (found.reason or "")
    assert (found.reason is None) is (status is Status.RUNNING)


reasons = st.lists(st.sampled_from(["a", "b"]), max_size=2).map(tuple)
facts_of_any_kind = st.builds(
    QueryFacts,
    st.booleans(),
    reasons,
    reasons,
    st.lists(st.builds(Stuck, st.just("x"), st.integers(1, 9), st.integers(0, 2 * STALLED_MS)), max_size=2).map(tuple),
    st.lists(st.just((LATENCY, 200.0)), max_size=1).map(tuple),
    st.none() | st.just("it waits"),
    st.integers(0, 2),
    st.none() | st.integers(0, 2 * IDLE_MS),
)


@given(facts_of_any_kind)
def test_the_worst_is_told_and_running_means_that_nothing_is_wrong(facts: QueryFacts) -> None:
    stalls = any(each.for_ms >= STALLED_MS for each in facts.stuck)
    holds = {
        Status.STOPPING: facts.is_stopping,
        Status.PAUSED: bool(facts.paused),
        Status.WAITING: bool(facts.waiting),
        Status.STALLED: stalls,
        Status.VIOLATING: bool(facts.missed),
        Status.IDLE: facts.quiet_ms is not None and facts.quiet_ms >= IDLE_MS and not facts.pending,
        Status.RUNNING: True,
    }
    assert query_condition(facts).status is next(status for status in Status if holds[status])


@given(st.dictionaries(st.text("abc", min_size=1), st.sampled_from(list(Status))), st.booleans(), st.booleans())
def test_the_service_is_ok_only_if_no_query_and_no_host_has_a_problem(
    queries: dict[str, Status], host: bool, site: bool
) -> None:
    facts = ServiceFacts(
        problems=("the disk is full",) * host,
        sites={"west": ("slot 0 ended",)} if site else {},
        queries={name: Condition(status, "so it is") for name, status in queries.items()},
    )
    found = service_condition(facts)
    bad = {name for name, status in queries.items() if status.is_problem}
    assert (found.status == "ok") is not (bool(bad) or host or site)
    assert {p.split()[1] for p in found.problems if p.startswith("query ")} == bad
    assert ("the disk is full" in found.problems, "site west: slot 0 ended" in found.problems) == (host, site)
    assert sum(found.queries.values()) == len(queries)


def test_many_problems_are_counted_and_the_worst_come_first() -> None:
    queries = {f"q{i:03}": Condition(Status.VIOLATING, "late") for i in range(100)}
    found = service_condition(ServiceFacts(queries={**queries, "z": Condition(Status.PAUSED, "broken")}))
    assert len(found.problems) == MOST_PROBLEMS + 1
    assert (found.problems[0], found.problems[-1]) == (
        "query z is paused: broken",
        f"and {101 - MOST_PROBLEMS} more queries",
    )


def test_while_it_starts_or_stops_that_is_what_is_said() -> None:
    assert service_condition(ServiceFacts(is_ready=False)).status == "starting"
    assert service_condition(ServiceFacts(is_stopping=True, problems=("x",))).status == "stopping"


@pytest.mark.parametrize(
    ("demand", "value", "words"),
    [
        (LATENCY, 1_734.0, "latency < 100 ms is missed: 1730 ms, 17 times as much"),
        (LATENCY, 103.0, "latency < 100 ms is missed: 103 ms"),
        (OFTEN, 0.5, "frequency >= 4 /s is missed: 0.5 /s, 8 times as little"),
        (OFTEN, 0.0, "frequency >= 4 /s is missed: 0 /s"),
    ],
)
def test_by_how_much_a_demand_is_missed(demand: object, value: float, words: str) -> None:
    assert missed(demand, value) == words  # type: ignore[arg-type]


def test_a_reason_keeps_its_words_while_its_figures_change() -> None:
    assert [span(ms) for ms in (0, 999, 19_000, 59_000, 61_000, 7_300_000, 50 * 86_400_000)] == [
        "0 s", "0 s", "10 s", "30 s", "1 min", "2 h", "30 days",
    ]  # fmt: skip
    assert without_numbers("1,200 tuples wait: 3.5 s") == without_numbers("7 tuples wait: 12 s")
    assert without_numbers(None) == ""
