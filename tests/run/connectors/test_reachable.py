"""Which streams and sinks another machine reaches, when the one that had them is gone."""

from __future__ import annotations

from pathlib import Path

import pytest

from meander.model.errors import InputError
from meander.model.streams import SinkTarget, Stream
from meander.run.connectors import SINKS, SOURCES, check_connectors, sink_elsewhere, source_elsewhere
from meander.run.connectors.base import Surroundings
from tests.run.connectors.streams import stream


def options(**values: str) -> Stream:
    return stream(options=values)


def sink(**values: str) -> SinkTarget:
    return SinkTarget("out", "n1", values)


@pytest.mark.parametrize("connector", ["random", "trains", "vehicles", "sensors"])
def test_what_is_generated_is_the_same_everywhere(connector: str) -> None:
    assert source_elsewhere(options(connector=connector)) is None


def test_files_are_read_and_written_elsewhere_if_they_are_said_to_be_shared() -> None:
    for connector in ("files", "replay"):
        assert "shared: true" in str(source_elsewhere(options(connector=connector, path="/data/a.csv")))
        assert source_elsewhere(options(connector=connector, path="/data/a.csv", shared="true")) is None
    for connector in ("jsonl", "parquet", "spark"):
        assert "shared: true" in str(sink_elsewhere(sink(connector=connector, path="/data/out")))
        assert sink_elsewhere(sink(connector=connector, path="/data/out", shared="true")) is None


@pytest.mark.parametrize(
    ("url", "is_reached"),
    [
        ("http://results.example/a", True),
        ("https://10.0.0.7:8443/a", True),
        ("http://localhost:80/a", False),
        ("http://127.0.0.1/a", False),
        ("http://[::1]:8000/a", False),
    ],
)
def test_a_server_is_reached_from_elsewhere_unless_its_address_means_the_machine_itself(
    url: str, is_reached: bool
) -> None:
    assert (sink_elsewhere(sink(connector="http", url=url)) is None) == is_reached


def test_what_only_one_machine_has_is_named_with_the_reason() -> None:
    assert source_elsewhere(options(connector="http")) == "rows are sent to that machine"
    assert "Spark's notes" in str(source_elsewhere(options(connector="spark", format="rate")))
    for connector in ("memory", "console"):
        assert sink_elsewhere(sink(connector=connector)) is not None
    assert {*SOURCES, *SINKS} == {
        *("random", "trains", "vehicles", "sensors", "files", "replay", "http", "spark"),
        *("jsonl", "parquet", "memory", "console"),
    }


def test_a_shared_path_has_to_be_the_same_on_every_machine(tmp_path: Path) -> None:
    around = Surroundings(tmp_path, tmp_path)
    with pytest.raises(InputError, match=r"'path' is 'a\.csv'; expected a path from the root on"):
        check_connectors([options(connector="files", path="a.csv", shared="true")], [], around)
    with pytest.raises(InputError, match="option 'shared' is 'perhaps'; expected true or false"):
        check_connectors([], [sink(connector="jsonl", path="/a", shared="perhaps")], around)
