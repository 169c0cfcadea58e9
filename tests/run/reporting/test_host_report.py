"""What a host says of itself is what a coordinator reads, however it travels and whatever version sent it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meander.model.ids import ChannelId, FragmentId, OperatorId
from meander.run.reporting.backlog import ChannelFlow
from meander.run.reporting.host_report import MOST, HostReport, merged_flows

numbers = st.integers(0, 10**9)
texts = st.dictionaries(st.text(max_size=5), st.text(max_size=9), max_size=4)
flows = st.dictionaries(
    numbers.map(ChannelId), st.builds(ChannelFlow, st.integers(1, 10**9), numbers, numbers, numbers), max_size=5
)
reports = st.builds(
    HostReport,
    st.lists(st.text(max_size=9), max_size=3).map(tuple),
    st.none() | st.text(max_size=9),
    st.dictionaries(numbers.map(FragmentId), st.text(max_size=9), max_size=4),
    texts,
    texts,
    st.dictionaries(st.text(max_size=5), numbers, max_size=4),
    flows,
    state_bytes=st.dictionaries(numbers.map(FragmentId), numbers, max_size=4),
)


@given(reports)
def test_a_report_survives_a_heartbeat(report: HostReport) -> None:
    sent = json.loads(json.dumps({"problems": list(report.problems), **report.as_json()}))
    assert HostReport.of_json(sent) == report


def test_a_heartbeat_names_the_channels_that_have_waited_the_longest() -> None:
    many = {ChannelId(n): ChannelFlow(waits_ms=n, pending=1) for n in range(5 * MOST)}
    told = HostReport.of_json(HostReport(flows=many).as_json()).flows
    assert set(told) == {ChannelId(n) for n in range(4 * MOST, 5 * MOST)}


@pytest.mark.parametrize("said", [{}, {"healthy": True, "problems": ["x"]}])
def test_a_site_of_an_earlier_version_says_less(said: dict[str, Any]) -> None:
    assert HostReport.of_json(said) == HostReport(tuple(said.get("problems", ())))


@pytest.mark.parametrize(
    "said",
    [
        {"flows": {"x": [1, 2, 3, 4]}},
        {"flows": {"1": [1] * 9}},
        {"paused": 3},
        {"quiet_ms": {"a": []}},
        {"state": {"a": 1}},
    ],
)
def test_a_report_that_makes_no_sense_is_a_problem_of_its_site_only(said: dict[str, Any]) -> None:
    assert HostReport.of_json(said).problems == (
        "it says nothing that this coordinator understands; update one of them",
    )


def test_a_channel_that_two_hosts_know_is_as_bad_as_either_says() -> None:
    c = ChannelId(1)
    two = {"a": HostReport(flows={c: ChannelFlow(5, 0, 0, 1)}), "b": HostReport(flows={c: ChannelFlow(9, 7, 0, 2)})}
    assert merged_flows(two) == {c: ChannelFlow(9, 7, 0, 2)}


def test_a_heartbeat_names_the_largest_states() -> None:
    sizes = {FragmentId(n): n for n in range(1, 5 * MOST)}
    told = HostReport.of_json(HostReport(state_bytes=sizes).as_json()).state_bytes
    assert told == {FragmentId(n): n for n in range(4 * MOST, 5 * MOST)}


def test_memories_of_join_parts_come_out_as_they_went_in() -> None:
    memories = {OperatorId(7): (3, 1_000, 2_000), OperatorId(8): (1, 1 << 62, -(1 << 62))}
    assert HostReport.of_json(HostReport(memories=memories).as_json()).memories == memories
