"""Sinks of queries that are about to come."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from meander.coordinator.sink_bindings import SinkBindings
from meander.lang import sql
from meander.model.errors import InputError
from meander.model.schema import Schema
from meander.model.streams import SinkTarget, Stream
from meander.run.connectors import sink_for
from meander.run.connectors.base import Surroundings

STREAMS = {"cars": Stream("cars", Schema.of(ts="timestamp", id="bigint"), "ts", ("s0",), 1.0)}


def bindings(directory: Path, **options: str) -> SinkBindings:
    sinks = {name: SinkTarget(name, "cloud", options if name == "out" else {}) for name in ("out", "aside")}
    loop = cast(Any, SimpleNamespace(catalog=SimpleNamespace(sinks=sinks)))
    unused = cast(Any, None)
    return SinkBindings(loop, unused, unused, Surroundings(directory, directory), sink_for)


def test_late_tuples_that_a_service_does_not_keep_were_asked_for_and_nobody_said_so(tmp_path: Path) -> None:
    (query,) = sql("CREATE QUERY q AS SELECT id FROM cars INTO out;", STREAMS, ["out"]).queries
    with pytest.raises(InputError, match="sink 'out': option 'late' is for `meander run`"):
        bindings(tmp_path, late="aside").prepare(query)
    bindings(tmp_path).prepare(query)
