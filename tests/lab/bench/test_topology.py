"""The topology experiment measures what it says, here on small sizes."""

import numpy as np
import pytest

from lab.bench import topology as experiment
from meander.local.topology_summary import summarise


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(experiment, "SIZES", (200, 400, 1000))
    monkeypatch.setattr(experiment, "build_process", lambda nodes: experiment.build_once(nodes))


def test_the_lab_has_twice_as_many_links_as_nodes() -> None:
    for nodes in (200, 10_000):
        summary = summarise(experiment.lab_of(nodes))
        assert (summary.nodes, summary.links, summary.components) == (nodes, 2 * nodes, 1)


def test_changing_links_leaves_the_topology_as_it_was() -> None:
    lab = experiment.lab_of(200)
    before = {(link.source, link.target, link.latency_ms) for link in lab.links()}
    took = experiment.change_links(lab, 50, np.random.default_rng(1))
    assert took.shape == (100,)
    assert (took > 0).all()
    assert {(link.source, link.target, link.latency_ms) for link in lab.links()} == before


def test_the_report_has_every_target() -> None:
    said: list[str] = []
    report = experiment.run(True, said.append)
    assert [target.name for target in report.targets] == [
        "build 1,000 nodes",
        "memory for 1,000 nodes",
        "link change, 200 nodes",
        "link change, 400 nodes",
        "link change, 1,000 nodes",
        "link change, largest to smallest",
    ]
    assert said[0] == "building 1,000 nodes, 1 of 3"
    assert all(figure.measured > 0 for figure in report.figures if figure.unit != "MB")
