"""The demo's trains on a test bed, without the bed: what they ask of the coordinator."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any, cast

import pytest
from typer.testing import CliRunner

from lab.testbed.layout import HOME, layout
from lab.testbed.process_test_bed import ProcessTestBed
from lab.testbed.trains import Trains
from meander.cli.main import app
from meander.demo import line as demo_line
from meander.lang.topology.reader import read
from meander.model.errors import InputError


class Answers:
    """A coordinator that takes every event, and at last lets the trains end."""

    def __init__(self, topology: dict[str, Any], ended: threading.Event) -> None:
        self.topology, self.ended = topology, ended
        self.asked: list[dict[str, Any]] = []

    def get(self, path: str) -> Any:
        return {"/topology": self.topology, "/queries": []}[path]

    def ask(self, method: str, path: str, body: Any) -> tuple[int, Any]:
        assert (method, path) == ("POST", "/events")
        self.asked += body["events"]
        self.ended.set()
        return 200, {}


def test_a_train_that_is_far_from_its_base_station_changes_to_the_nearest() -> None:
    contents = read(demo_line.topology(1))
    links = [{"a": "train-1", "b": "base-14"}]
    nodes = [{"name": contents.topology.name(n), "alive": True} for n in contents.topology.ids()]
    ended = threading.Event()
    answers = Answers({"nodes": nodes, "links": links}, ended)
    trains = Trains(cast(ProcessTestBed, answers), contents.streams["train"], lambda text: None)
    trains.run(ended, 60.0)
    assert [(e["event"], e["target"]) for e in answers.asked] == [("link_removed", "base-14"), ("link_added", "base-1")]
    assert trains.handovers == 1


@pytest.mark.parametrize("count", [1, 3, 27])
def test_the_line_is_cut_into_regions_that_have_a_way_to_the_coordinator(count: int) -> None:
    found = layout(read(demo_line.topology(6)).topology, demo_line.regions(6, count))
    assert len(found.sites) == count
    assert {"cloud", "control", "gateway-1"} <= set(found.hosts[HOME])
    assert sum(node.startswith(("base-", "train-", "weather-")) for s in found.sites for node in found.hosts[s]) == 39


def test_too_many_regions_and_a_bed_of_nothing_are_errors(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="1 to 27 parts, not 28"):
        demo_line.regions(6, 28)
    for arguments, reason in (
        ([], "name a topology file, or use --demo"),
        (["x.yaml", "--demo"], "leave out the file"),
    ):
        result = CliRunner().invoke(app, ["testbed", "up", *arguments, "--dir", str(tmp_path / "bed")])
        assert result.exit_code != 0
        assert reason in str(result.exception or result.output)
