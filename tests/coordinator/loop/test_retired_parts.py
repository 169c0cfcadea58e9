"""Retired parts of joins, here and at sites: none is let go before its memory holds nothing from before it retired."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from meander.coordinator.loop.retired_parts import RetiredParts
from meander.model.ids import FragmentId, NodeId, OperatorId
from meander.place.nova.queries.join_parts import JoinPart, Running
from meander.run.reporting.join_part_memories import EVER, NEVER, MemorySpan

JOIN, FRAGMENT = OperatorId(7), FragmentId(3)


class Elsewhere:
    """A part that runs at a site, and the last report about its memory."""

    def __init__(self) -> None:
        self.deployment = SimpleNamespace(owner={JOIN: FRAGMENT}, fragments={FRAGMENT: SimpleNamespace(version=2)})
        self.has_open_changes = False
        self.report: dict[OperatorId, MemorySpan] = {}
        self.effective = False
        host = cast(Any, SimpleNamespace(routing=SimpleNamespace(fragments={})))
        self.parts = RetiredParts(host, cast(Any, self))
        self.parts.elsewhere = lambda: self.report
        self.running = Running(JoinPart(0, 1, (0, 9), (0, 9), NodeId(0)), JOIN, retired=True)
        self.parts.note([self.running], lambda: self.effective)

    def says(self, version: int, oldest: int, newest: int) -> bool:
        self.report = {JOIN: MemorySpan(version, oldest, newest)}
        return self.parts.look()


def test_a_part_at_a_site_ends_when_reports_say_that_its_memory_is_younger() -> None:
    site = Elsewhere()
    assert not site.says(1, 100, 200)
    site.effective = True
    assert not site.says(1, 100, 200), "a report of before: tuples that are not marked may have come since"
    assert not site.says(2, 100, 300)
    assert not site.says(2, 250, 400)
    assert site.says(2, 301, 500)
    assert site.parts.spent() == [site.running]
    site.has_open_changes = True
    assert not site.parts.look(), "changes under way come first"


def test_a_part_without_memory_ends_at_once_and_one_that_nobody_reports_of_does_not() -> None:
    site = Elsewhere()
    site.effective = True
    assert not site.parts.look()
    assert site.says(2, EVER, NEVER)
