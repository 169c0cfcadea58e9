"""The adaptation of a coordinator that starts: with the settings and the knowledge of the last process."""

from __future__ import annotations

import logging
from pathlib import Path

from meander.adapt.knowledge import Knowledge
from meander.adapt.mechanism_forecasts import CatalogForesight
from meander.adapt.per_query import PerQuery
from meander.adapt.setting_layers import AdaptationPolicy
from meander.adapt.settings import BY_DEMANDS
from meander.coordinator.adaptation.adaptation import Adaptation, per_query
from meander.coordinator.ledger.ledger import Ledger
from meander.coordinator.loop.loop import PlacementLoop
from meander.place.nova.queries.partitioned_queries import NOVA

_log = logging.getLogger(__name__)
USUAL = "bottom_up"
"""The mechanism of queries that demand nothing, where none is named."""
FORECAST_S = 0.5
"""The longest time of a mechanism for a forecast: the decision core waits meanwhile."""


def mechanisms_from(chosen: str) -> PerQuery:
    """All mechanisms, and for queries of which none is chosen the one that is, or the usual one."""
    return per_query(USUAL if chosen in (BY_DEMANDS, NOVA) else chosen)


def restored(loop: PlacementLoop, knowledge: Path, policy: AdaptationPolicy, ledger: Ledger) -> Adaptation:
    """The adaptation of a coordinator, with the settings and the knowledge of the last process."""
    for query, values in ledger.queries.adaptation().items():
        for name in policy.restore(query, values):
            _log.warning("setting %s%s is not allowed any more: its default applies", name, query and f" of {query}")
    adaptation = Adaptation(loop, policy=policy, knowledge=Knowledge.load(knowledge))
    if isinstance(adaptation.mapek.foresight, CatalogForesight):
        adaptation.mapek.foresight.time_limit_s = FORECAST_S
    return adaptation
