"""The adaptation settings at run time: shown, changed and taken back, for all queries or for one.

What is changed is in the ledger before it applies, so that the next process has it too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from http import HTTPStatus
from typing import Any

from meander.adapt.setting_layers import checked
from meander.coordinator.core.commands import Answer, CoreTask, Key
from meander.coordinator.core.core import Core
from meander.coordinator.problems import not_found
from meander.coordinator.service.service import Service
from meander.model.errors import unknown


def show(service: Service, query: str = "") -> dict[str, Any]:
    """Every setting with its value, where that comes from, its default and the values that are allowed."""
    core = service.core
    if query and query not in service.views.queries:
        raise not_found(unknown("query", query, service.views.queries, "queries"))
    return _shown(core, query)


def _shown(core: Core, query: str) -> dict[str, Any]:
    policy = core.adaptation.policy
    own = [name for name, found in (policy.of_queries | policy.changed).items() if name and found]
    return {
        "query": query or None,
        "settings": [
            {
                "name": each.setting.name,
                "value": each.value,
                "source": each.source,
                "default": each.setting.default,
                "allowed": each.setting.allowed,
                "choices": each.setting.choices,
                "about": each.setting.about,
                "one_query": each.setting.one_query,
            }
            for each in policy.shown(query)
        ],
        "queries_with_own": sorted(own),
    }


def change(service: Service, query: str, values: Mapping[str, Any], key: Key | None = None) -> Future[Answer]:
    """Sets values, all of them or none."""

    def run(core: Core) -> Answer:
        _check(core, query)
        save(core, query, values)
        return HTTPStatus.OK, _shown(core, query)

    checked(values, query or None)
    return service.core.ask(CoreTask(run, key))


def reset(service: Service, query: str, names: Sequence[str], key: Key | None = None) -> Future[Answer]:
    """Takes back what was set at run time, all of it unless names are given."""

    def run(core: Core) -> Answer:
        _check(core, query)
        policy = core.adaptation.policy
        before = dict(policy.changed.get(query, {}))
        gone = policy.reset(query, names)
        try:
            with core.ledger.transaction():
                core.ledger.queries.save_adaptation(query, policy.changed[query])
        except BaseException:
            policy.restore(query, before)
            raise
        return HTTPStatus.OK, _shown(core, query) | {"reset": gone}

    return service.core.ask(CoreTask(run, key))


def save(core: Core, query: str, values: Mapping[str, Any]) -> None:
    """Writes values down and lets them apply."""
    policy = core.adaptation.policy
    kept = {**policy.changed.get(query, {}), **checked(values, query or None)}
    with core.ledger.transaction():
        core.ledger.queries.save_adaptation(query, kept)
    policy.change(query, values)


def _check(core: Core, query: str) -> None:
    known = core.loop.catalog.plan.queries
    if query and query not in known:
        raise not_found(unknown("query", query, known, "queries"))
