"""Random demands and conditions."""

from __future__ import annotations

from hypothesis import strategies as st

from meander.model.conditions import COMPARISONS, Clause, Fact, Test
from meander.model.demands import Demand, Metric

AMOUNTS = st.sampled_from([0.0, 0.25, 0.5, 1.0, 2.0, 3.0]) | st.floats(0, 1e6)


@st.composite
def tests(draw: st.DrawFn) -> Test:
    fact = draw(st.sampled_from(Fact))
    numbers: st.SearchStrategy[float] = AMOUNTS if fact.cycle is None else st.integers(*fact.cycle).map(float)
    if draw(st.booleans()):
        low, high = draw(numbers), draw(numbers)
        return Test(fact, "BETWEEN", *(sorted((low, high)) if fact.cycle is None else (low, high)))
    return Test(fact, draw(st.sampled_from(list(COMPARISONS))), draw(numbers))


CLAUSES = st.builds(Clause, st.lists(tests(), min_size=1, max_size=2).map(tuple), st.booleans())
DEMANDS = st.builds(
    Demand,
    st.sampled_from(Metric),
    st.sampled_from(list(COMPARISONS)),
    AMOUNTS,
    st.sampled_from([1.0, 2.0, 0.3]),
    st.lists(CLAUSES, max_size=2).map(tuple),
)
FACTS = st.fixed_dictionaries(
    {
        Fact.HOUR: st.integers(0, 23).map(float),
        Fact.WEEKDAY: st.integers(1, 7).map(float),
        Fact.CHURN: AMOUNTS,
        Fact.MOBILITY: AMOUNTS,
        Fact.WORKLOAD: AMOUNTS,
    }
)
