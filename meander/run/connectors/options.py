"""Options of connectors: texts from a topology file, read with errors that name stream, option and remedy."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from meander.model.errors import InputError, unknown
from meander.model.units import duration_ms, size_bytes
from meander.run.connectors.secrets import Secret, check_not_written_out, is_secret


@dataclass(frozen=True, slots=True)
class ConnectorOption:
    """A documented option. A name that ends in `.` is a prefix: `range.speed`."""

    name: str
    meaning: str
    default: str = ""


OPTION = "option."
DEFAULT_SOURCE, DEFAULT_SINK = "random", "jsonl"

STREAM_OPTIONS = (
    ConnectorOption("connector", "where the tuples come from", DEFAULT_SOURCE),
    ConnectorOption("disorder", "how much older than the newest tuple of its producer a tuple may be", "0"),
    ConnectorOption(
        "idle_timeout", "after how long without tuples a producer's watermark goes on with the clock", "never"
    ),
    ConnectorOption("ahead", "how far ahead of the clock an event time may be; a row beyond it is malformed", "any"),
    ConnectorOption("malformed", "how many malformed rows are put aside before the stream is paused", "no limit"),
    ConnectorOption("only.", "the one value that each producer has in a column, `p1=north, p2=south`: who joins whom"),
)
"""Options that every stream has."""

SINK_OPTIONS = (
    ConnectorOption("connector", "where the results go", DEFAULT_SINK),
    ConnectorOption(
        "event_time", "whether each row gets a column `_newest`: event time of its newest input, in ms", "false"
    ),
    ConnectorOption("retries", "how often a write that failed is tried again before the sink binding is paused", "5"),
    ConnectorOption("backoff", "how long the first of these waits; each one waits twice as long", "200 ms"),
    ConnectorOption(
        "late",
        "another sink, which gets the tuples that came too late for the query's windows; for `meander run` only, "
        "a service counts them",
        "none",
    ),
)
"""Options that every sink has."""


class ConnectorOptions:
    """The options of one stream or sink; `what` is how errors call it."""

    def __init__(self, values: Mapping[str, str], what: str) -> None:
        self.values, self.what = values, what

    def check(self, known: Iterable[ConnectorOption]) -> None:
        """Refuses options that no connector reads."""
        names = [o.name for o in known]
        exact = {n for n in names if not n.endswith(".")}
        prefixes = tuple(n for n in names if n.endswith("."))
        for name in self.values:
            if name not in exact and not (prefixes and name.startswith(prefixes)):
                shown = [*exact, *(f"{p}<column>" for p in prefixes)]
                raise InputError(f"{self.what}: {unknown('option', name, shown).message}")

    def wrong(self, name: str, expected: str) -> InputError:
        if is_secret(name):
            return InputError(f"{self.what}: option {name!r} is not {expected}")
        return InputError(f"{self.what}: option {name!r} is {self.values.get(name)!r}; expected {expected}")

    def text(self, name: str, default: str = "") -> str:
        return self.values.get(name, default)

    def required(self, name: str, example: str) -> str:
        if name not in self.values:
            raise InputError(f"{self.what} needs option {name!r}, such as {name}: {example}")
        return self.values[name]

    def number(self, name: str, default: float, least: float = -math.inf, most: float = math.inf) -> float:
        if name not in self.values:
            return default
        try:
            value = float(self.values[name])
        except ValueError:
            value = math.nan
        if not least <= value <= most:
            raise self.wrong(name, f"a number {_between(least, most)}".strip())
        return value

    def whole(self, name: str, default: int, least: int = 0) -> int:
        if name not in self.values:
            return default
        try:
            value = int(self.values[name].replace("_", ""))
        except ValueError:
            value = least - 1
        if value < least:
            raise self.wrong(name, f"a whole number from {least} on")
        return value

    def truth(self, name: str, default: bool = False) -> bool:
        match self.values.get(name, str(default)).lower():
            case "true" | "yes" | "on" | "1":
                return True
            case "false" | "no" | "off" | "0":
                return False
        raise self.wrong(name, "true or false")

    def duration(self, name: str, default_ms: int | None = None) -> int | None:
        """Milliseconds; `0` is allowed without a unit."""
        if name not in self.values:
            return default_ms
        if self.values[name].strip() == "0":
            return 0
        try:
            return duration_ms(self.values[name])
        except InputError as error:
            raise InputError(f"{self.what}: option {name!r}: {error.message}") from None

    def size(self, name: str) -> int | None:
        """Bytes; None if it is not given."""
        if name not in self.values:
            return None
        try:
            return size_bytes(self.values[name])
        except InputError as error:
            raise InputError(f"{self.what}: option {name!r}: {error.message}") from None

    def choice(self, name: str, choices: Iterable[str], default: str) -> str:
        value = self.values.get(name, default)
        allowed = list(choices)
        if value not in allowed:
            raise self.wrong(name, f"one of {', '.join(allowed)}")
        return value

    def secret(self, name: str) -> Secret | None:
        """The place of a secret; it is looked up where the connector is opened."""
        if name not in self.values:
            return None
        return Secret.at(self.values[name], f"{self.what}: option {name!r}")

    def words(self, name: str) -> list[str]:
        """Words between commas."""
        return [w.strip() for w in self.values.get(name, "").split(",") if w.strip()]

    def path(self, name: str, base: Path, example: str) -> Path:
        return base / Path(self.required(name, example)).expanduser()

    def foreign(self, ours: Iterable[ConnectorOption]) -> dict[str, str]:
        """Options that are not ours but another system's; `option.` in front of one says so."""
        names = {o.name for o in ours}
        check_not_written_out({k: v for k, v in self.values.items() if k not in names}, self.what)
        found = {k: v for k, v in self.values.items() if k not in names and not k.startswith(OPTION)}
        return found | self.under(OPTION)

    def under(self, prefix: str) -> dict[str, str]:
        """Options below a prefix, without it."""
        return {k.removeprefix(prefix): v for k, v in self.values.items() if k.startswith(prefix)}


def _between(least: float, most: float) -> str:
    if math.isinf(most):
        return "" if math.isinf(least) else f"from {least:g} on"
    return f"from {least:g} to {most:g}"
