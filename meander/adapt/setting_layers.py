"""The settings as users write them: names, checks, and the layers that they come from.

A value is a text, a number, a truth value or a list, as in `meander.toml`, JSON or on the command line. Later layers
win: the default, the settings file, what was set at run time; then the same two for one query.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from meander.adapt.selection import SELECTORS
from meander.adapt.settings import BY_DEMANDS, AdaptationSettings
from meander.deploy.protocols.transitions import TRANSITIONS
from meander.model.errors import InputError, unknown
from meander.model.ids import QueryId
from meander.model.units import duration_ms
from meander.place.mechanisms import MECHANISMS
from meander.place.nova.queries.partitioned_queries import NOVA

DEFAULTS = AdaptationSettings()
LONGEST_MS = 365 * 86_400_000
MOST_COUNT, MOST_LEVELS, MOST_SHOWN = 1_000_000, 20, 80


@dataclass(frozen=True, slots=True)
class AdaptationSetting:
    """One setting: its name for users, the field it fills, and how its values are read."""

    name: str
    field: str
    read: Callable[[Any], Any]
    """The field's value; raises for a value that is not allowed."""
    allowed: str
    about: str
    one_query: bool = True
    """Whether it can differ from query to query."""
    choices: tuple[str, ...] = ()
    """The values that there are, where they can be listed."""

    @property
    def default(self) -> Any:
        """The default, as users write it."""
        return self.show(DEFAULTS)

    def show(self, settings: AdaptationSettings) -> Any:
        """The value, as users write it."""
        value = getattr(settings, self.field)
        if self.field.endswith("_ms"):
            return duration_text(value)
        return list(value) if isinstance(value, tuple) else value

    def checked(self, value: Any) -> Any:
        """The field's value; an error names the setting and the values that are allowed."""
        try:
            return self.read(value)
        except (InputError, ValueError, TypeError, OverflowError, OSError):  # zones are files
            shown = repr(value)
            shown = shown if len(shown) <= MOST_SHOWN else f"{shown[:MOST_SHOWN]}..."
            raise InputError(f"{self.name} must be {self.allowed}, not {shown}") from None


def duration_text(ms: int) -> str:
    """A duration as people write it.

    >>> duration_text(90_000), duration_text(120_000), duration_text(1_500)
    ('90s', '2min', '1500ms')
    """
    if ms % 1_000:
        return f"{ms}ms"
    return f"{ms // 60_000}min" if ms % 60_000 == 0 else f"{ms // 1_000}s"


def _choice(name: str, known: Iterable[str], about: str) -> AdaptationSetting:
    choices = tuple(known)

    def read(value: Any) -> str:
        if value not in choices:
            raise ValueError
        return str(value)

    return AdaptationSetting(name, name, read, f"one of {', '.join(choices)}", about, choices=choices)


def _flag(name: str, about: str) -> AdaptationSetting:
    known = {True: True, False: False, "true": True, "false": False}

    def read(value: Any) -> bool:
        if isinstance(value, bool | str) and value in known:
            return known[value]
        raise ValueError

    return AdaptationSetting(name, name, read, "true or false", about, choices=("true", "false"))


def _duration(value: Any) -> int:
    found = duration_ms(value)
    if found > LONGEST_MS:
        raise ValueError
    return found


def _number(value: Any) -> float:
    if isinstance(value, bool):
        raise ValueError
    found = float(value)
    if not math.isfinite(found):
        raise ValueError
    return found


def _share(most: float, *, below: bool = False) -> Callable[[Any], float]:
    def read(value: Any) -> float:
        found = _number(value)
        if not 0 <= found <= most or (below and found == most):
            raise ValueError
        return found

    return read


def _count(value: Any) -> int:
    found = _number(value)
    if not 1 <= found <= MOST_COUNT or found != int(found):
        raise ValueError
    return int(found)


def _list(value: Any) -> list[Any]:
    if isinstance(value, str):
        return [part.strip() for part in value.split(",") if part.strip()]
    if not isinstance(value, list | tuple):
        raise ValueError
    return list(value)


def _names(value: Any) -> tuple[str, ...]:
    known = {m.name for m in MECHANISMS}
    found = () if value == "all" else tuple(dict.fromkeys(_list(value)))
    if not known.issuperset(found):
        raise ValueError
    return found


def _levels(value: Any) -> tuple[float, ...]:
    found = tuple(map(_number, _list(value)))
    rising = list(found) == sorted(set(found))
    if len(found) > MOST_LEVELS or any(level <= 0 for level in found) or not rising:
        raise ValueError
    return found


def _zone(value: Any) -> str:
    try:
        ZoneInfo(value)
    except ZoneInfoNotFoundError:
        raise ValueError from None
    return str(value)


_MECHANISMS = [m.name for m in MECHANISMS]
_COUNT = f"a whole number from 1 to {MOST_COUNT:,}"
_DURATION = "a duration such as 30s or 5min, at most 365d"
_LEVELS = f"up to {MOST_LEVELS} increasing numbers above 0, such as 1, 10"

SETTINGS: tuple[AdaptationSetting, ...] = (
    _flag("act", "switch mechanisms; false: decide and log only"),
    _choice(
        "first",
        (BY_DEMANDS, NOVA, *_MECHANISMS),
        "mechanism that a query begins with; by_demands: chosen from its demands, bottom_up without any; nova: where a "
        "join can be placed by it, otherwise by_demands",
    ),
    _choice("selector", (s.name for s in SELECTORS), "how a mechanism is chosen from what is believed about each"),
    AdaptationSetting(
        "exploration",
        "exploration",
        _share(0.5),
        "a number from 0 to 0.5",
        "share of periodic looks at which linear_ranking draws another mechanism; 0: nothing is ever tried out",
    ),
    _flag("try_early", "try out other mechanisms before the query has given its first result"),
    AdaptationSetting(
        "mechanisms",
        "mechanisms",
        _names,
        f"all, or a list from {', '.join(_MECHANISMS)}",
        "mechanisms that may be chosen; an empty list means all",
    ),
    _choice("protocol", (p.name for p in TRANSITIONS), "how operators move in automatic transitions"),
    AdaptationSetting("stay", "stay_ms", _duration, _DURATION, "a mechanism stays at least so long"),
    AdaptationSetting("period", "period_ms", _duration, _DURATION, "a look at the query when nothing happens"),
    AdaptationSetting(
        "violated_rounds",
        "violated_rounds",
        _count,
        _COUNT,
        "rounds (of 1 s) in a row with a missed demand before something is done",
    ),
    AdaptationSetting(
        "margin",
        "margin",
        _share(1.0, below=True),
        "a number from 0 to less than 1",
        "share of the demands' weight that a switch must be expected to win",
    ),
    AdaptationSetting(
        "payback",
        "payback_ms",
        _duration,
        _DURATION,
        "a switch must be expected to make up for what its transition disturbs within so long",
    ),
    AdaptationSetting(
        "retry", "retry_ms", _duration, _DURATION, "next try after a violation that nothing could be done about"
    ),
    AdaptationSetting(
        "longest_retry", "longest_retry_ms", _duration, _DURATION, "tries are spaced twice as long, up to this"
    ),
    AdaptationSetting(
        "quarantine",
        "quarantine_ms",
        _duration,
        _DURATION,
        "a mechanism that broke is not asked for so long; twice as long each time",
        False,
    ),
    AdaptationSetting(
        "churn_levels",
        "churn_levels",
        _levels,
        _LEVELS,
        "nodes and links that come or go, per minute: a level crossed is another environment",
        False,
    ),
    AdaptationSetting(
        "mobility_levels", "mobility_levels", _levels, _LEVELS, "handovers of a mobile node, per minute", False
    ),
    AdaptationSetting("workload_levels", "workload_levels", _levels, _LEVELS, "tuples that enter, per second", False),
    AdaptationSetting(
        "plans_per_round",
        "plans_per_round",
        _count,
        _COUNT,
        "queries that are looked at in one round at most",
        False,
    ),
    AdaptationSetting(
        "zone",
        "zone",
        _zone,
        "a time zone such as UTC or Europe/Berlin",
        "time zone of hour and weekday in conditions",
        False,
    ),
)
_BY_NAME = {s.name: s for s in SETTINGS}
assert {s.field for s in SETTINGS} == {f.name for f in fields(AdaptationSettings)}


def checked(values: Mapping[str, Any], query: str | None = None) -> dict[str, Any]:
    """The values as they are kept; raises for an unknown setting, a wrong value, or one that no query has alone."""
    found: dict[str, Any] = {}
    for name, value in values.items():
        if name not in _BY_NAME:
            raise unknown("adaptation setting", name, _BY_NAME)
        setting = _BY_NAME[name]
        if query is not None and not setting.one_query:
            raise InputError(f"{name} holds for all queries; leave the query out to set it")
        read = setting.checked(value)
        found[name] = setting.show(replace(DEFAULTS, **{setting.field: read}))
    return found


@dataclass(frozen=True, slots=True)
class ShownSetting:
    """A setting with its value, and the layer it comes from."""

    setting: AdaptationSetting
    value: Any
    source: str


class AdaptationPolicy:
    """The settings of every query, from all layers."""

    def __init__(
        self,
        base: AdaptationSettings = DEFAULTS,
        file: Mapping[str, Any] | None = None,
        of_queries: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> None:
        """`file` and `of_queries` are what the settings file says, for all queries and for single ones."""
        self.base, self.file = base, checked(file or {})
        self.of_queries = {query: checked(found, query) for query, found in (of_queries or {}).items()}
        self.changed: dict[str, dict[str, Any]] = {}
        """The settings made at run time, by query; those of all queries under an empty name."""
        self._known: dict[str, AdaptationSettings] = {}

    def of(self, query: QueryId | None = None) -> AdaptationSettings:
        """The settings that apply to a query, or to all that have none of their own."""
        key = query or ""
        found = self._known.get(key)
        if found is None:
            given: dict[str, Any] = {}
            for _, layer in self._layers(key):
                given |= {_BY_NAME[n].field: _BY_NAME[n].checked(value) for n, value in layer.items()}
            found = self._known[key] = replace(self.base, **given)
        return found

    def change(self, query: str, values: Mapping[str, Any]) -> dict[str, Any]:
        """Sets values at run time; returns them as they are kept."""
        found = checked(values, query or None)
        self.changed[query] = {**self.changed.get(query, {}), **found}
        self._known.clear()
        return found

    def reset(self, query: str, names: Iterable[str] = ()) -> list[str]:
        """Takes back what was set at run time, all of it unless names are given; returns the names it took back."""
        wanted = tuple(names)
        for name in wanted:
            if name not in _BY_NAME:
                raise unknown("adaptation setting", name, _BY_NAME)
        mine = self.changed.get(query, {})
        gone = [name for name in mine if not wanted or name in wanted]
        self.changed[query] = {name: value for name, value in mine.items() if name not in gone}
        self._known.clear()
        return gone

    def restore(self, query: str, values: Mapping[str, Any]) -> list[str]:
        """Takes up what was set in another process; returns the names of those that are not allowed any more."""
        bad: list[str] = []
        for name, value in values.items():
            try:
                self.change(query, {name: value})
            except InputError:
                bad.append(name)
        return bad

    def forget(self, query: str) -> None:
        """The query ended."""
        self.changed.pop(query, None)
        self._known.pop(query, None)

    def shown(self, query: str = "") -> list[ShownSetting]:
        """All settings that a query can have, or all there are, with the layer that each value comes from."""
        settings, layers = self.of(QueryId(query) if query else None), self._layers(query)
        found: list[ShownSetting] = []
        for setting in SETTINGS:
            if query and not setting.one_query:
                continue
            usual = "default" if setting.show(self.base) == setting.default else "option of the service"
            source = next((told for told, layer in reversed(layers) if setting.name in layer), usual)
            found.append(ShownSetting(setting, setting.show(settings), source))
        return found

    def _layers(self, query: str) -> list[tuple[str, Mapping[str, Any]]]:
        layers: list[tuple[str, Mapping[str, Any]]] = [("meander.toml", self.file)]
        layers.append(("set at run time", self.changed.get("", {})))
        if query:
            layers.append(("meander.toml, this query", self.of_queries.get(query, {})))
            layers.append(("set for this query", self.changed.get(query, {})))
        return layers
