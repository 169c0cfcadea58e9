"""How many moves of the published device scenarios are expected, from the first move of each device on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from lab.workloads.isqd import published, scenarios
from meander.adapt.mobility.markov import MarkovPredictor
from meander.adapt.mobility.predictor import Attachment
from meander.adapt.mobility.settings import PredictionSettings
from meander.model.errors import InputError
from meander.model.events import ChangeEvent, LinkAdded

HIT, MISS, UNKNOWN = "hit", "miss", "unknown"


def accuracy() -> dict[str, Counter[str]]:
    """By scenario; empty where the data is not there."""
    try:
        names = scenarios()
    except InputError:
        return {}
    return {name: _outcomes(published(name).events) for name in names}


def _outcomes(events: Iterable[ChangeEvent]) -> Counter[str]:
    predictor, found, least = MarkovPredictor(), Counter[str](), PredictionSettings().least_probability
    for event in events:
        if not isinstance(event, LinkAdded):
            continue
        node, attachment = event.link.source, event.link.target
        expected = predictor.next(node, event.at_ms)
        if expected is None or expected.probability < least:
            found[UNKNOWN] += 1
        else:
            found[HIT if expected.attachment == attachment else MISS] += 1
        predictor.moved(Attachment(node, "device", attachment, event.at_ms))
    return found
