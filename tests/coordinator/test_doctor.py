"""The doctor tells what lasts, not what passes."""

from __future__ import annotations

from collections.abc import Iterator

from meander.coordinator.doctor import Examination, Finding, diagnose
from meander.model.ids import ChannelId, FragmentId
from meander.run.reporting.inventory import ChannelFacts, FragmentFacts, Inventory


def _examinations(*findings: tuple[str, ...]) -> Iterator[Examination]:
    for found in findings:
        yield Examination(tuple(Finding("host", what) for what in found), 1, 2, 3, 0, {})


def test_a_difference_that_every_examination_finds_is_told() -> None:
    found = _examinations(("lost", "passing"), ("lost",), ("lost", "new"))
    assert diagnose(lambda: next(found), lambda s: None).findings == (Finding("host", "lost"),)


def test_a_difference_that_passes_is_not_told() -> None:
    found = _examinations(("passing",), (), ("other",))
    assert diagnose(lambda: next(found), lambda s: None).findings == ()


def test_one_look_is_enough_when_nothing_differs() -> None:
    found = _examinations(())
    assert diagnose(lambda: next(found), lambda s: None).findings == ()


def test_an_inventory_is_the_same_after_it_was_sent() -> None:
    fragments = {FragmentId(3): FragmentFacts(2, (ChannelId(1),), (ChannelId(4), ChannelId(5)))}
    channels = {
        ChannelId(1): ChannelFacts(None, FragmentId(3), True),
        ChannelId(4): ChannelFacts(FragmentId(3), None, False),
    }
    inventory = Inventory(fragments, channels, frozenset({FragmentId(3)}))
    assert Inventory.from_json(inventory.to_json()) == inventory
