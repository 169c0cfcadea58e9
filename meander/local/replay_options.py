"""The options of a replay, and what they need to be carried out."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from meander.adapt.setting_layers import DEFAULTS, AdaptationPolicy
from meander.deploy.protocols import protocol
from meander.local.placement_replay import Setting
from meander.model.operators import Sink
from meander.model.streams import Stream
from meander.place.mechanisms import mechanism
from meander.reconfigure.state import state_strategy
from meander.run.connectors import check_connectors
from meander.run.connectors.base import Surroundings

GENERATED = {"connector": "random", "range.id": "0..100", "range.value": "0..100"}


@dataclass(frozen=True, slots=True)
class ReplayOptions:
    """The options of a replay."""

    mechanism: str = "bottom_up"
    protocol: str = "isqd"
    strategy: str | None = None
    speed: float = 1.0
    most_changes: int | None = None
    quiet_s: float = 5.0
    rate_tps: float = 5.0
    """Of producers of streams that have no source of their own."""
    slots: int = 1
    emulate: bool = False
    check: bool = True
    in_turn: tuple[str, ...] = ()
    """Protocols that take turns, change by change, and move state the same way.

    Times of events do not count then: a change waits for the one before.
    """
    adapt: bool = False
    """Whether queries switch mechanisms when their demands are not met; `mechanism` is the first one then."""
    detour: float | None = None
    """The longest detour before operators follow; None for that of the topology."""

    @property
    def policy(self) -> AdaptationPolicy:
        """The settings of the adaptation loop."""
        return AdaptationPolicy(replace(DEFAULTS, first=self.mechanism))


def check_replay(setting: Setting, base: Path, options: ReplayOptions) -> None:
    """Raises InputError for a setting that cannot be replayed, before Spark starts."""
    mechanism(options.mechanism)
    for name in (options.protocol, *options.in_turn):
        protocol(name)
    if options.strategy is not None:
        state_strategy(options.strategy)
    streams = [fed(s, options) for s in setting.streams.values()]
    sinks = {o.name for q in setting.queries for o in q.plan.operators.values() if isinstance(o, Sink)}
    check_connectors(streams, (setting.sinks[name] for name in sinks), Surroundings(base, base))


def fed(stream: Stream, options: ReplayOptions) -> Stream:
    """A stream that says nothing of its source gets a generator."""
    if "connector" in stream.options:
        return stream
    known = {k: v for k, v in GENERATED.items() if "." not in k or k.split(".")[1] in stream.schema.names}
    return replace(stream, options={**known, **stream.options}, rate_tps=options.rate_tps)
