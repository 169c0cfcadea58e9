"""Requests that go to all hosts of a service: the coordinator's own one and those of sites."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from typing import Any

from meander.coordinator.core.commands import ANSWER_S, CoreTask
from meander.coordinator.core.core import Core
from meander.coordinator.doctor import Examination, Inventories, diagnose, examine
from meander.model.ids import OperatorId, QueryId
from meander.run.channels.flight.proof import HOME
from meander.run.resuming import resume

ResumeElsewhere = Callable[[str | None, Sequence[OperatorId]], Mapping[str, list[str] | str]]


class HostRequests:
    """Sites are asked by whoever knows them."""

    def __init__(self, core: Callable[[], Core]) -> None:
        self._core = core
        self.resume_elsewhere: ResumeElsewhere = lambda name, operators: {}
        """Lets sites try paused parts again."""
        self.inventories: Callable[[], Inventories] = dict
        """The inventories of all sites."""

    def resume(self, name: str | None = None) -> list[dict[str, Any]]:
        """Tries paused parts again, here and at all sites, or only those of a name."""
        loop = self._core().loop
        plan = loop.catalog.plan
        operators = plan.serving(QueryId(name)) if name is not None and QueryId(name) in plan.queries else []
        here: dict[str, list[str] | str] = {HOME: resume(loop.host, name, operators)}
        found = {**here, **self.resume_elsewhere(name, operators)}
        return [
            {"where": where, "resumed": [], "problem": told} if isinstance(told, str)
            else {"where": where, "resumed": told, "problem": None}
            for where, told in found.items()
        ]  # fmt: skip

    def doctor(self) -> dict[str, Any]:
        """Compares the running fragments, here and at all sites, with the catalog."""

        def once() -> Examination:
            elsewhere = self.inventories()
            answer = self._core().ask(CoreTask(lambda core: (HTTPStatus.OK, examine(core, elsewhere)))).result(ANSWER_S)
            found: Examination = answer[1]
            return found

        return diagnose(once).to_json()
