"""The doctor of a coordinator that runs: nothing differs, until somebody tampers with what runs; then it is named."""

from __future__ import annotations

import json
from typing import Any

import pytest
from typer.testing import CliRunner

from meander.api.coordinator import Coordinator
from meander.cli.main import app
from meander.model.ids import ChannelId
from meander.run.installation import OUTSIDE
from meander.run.store.commit import Commit, Rewire
from tests.api.conftest import Until
from tests.coordinator.world import Browser


def typed(coordinator: Coordinator, *more: str) -> tuple[int, str]:
    found = CliRunner().invoke(app, ["doctor", "-d", str(coordinator.home.directory), *more])
    return found.exit_code, found.output


@pytest.fixture(autouse=True)
def well(coordinator: Coordinator, operator: Browser, until: Until) -> None:
    until(lambda: operator.get("/queries/steady")["status"] == "running")
    until(lambda: not operator.get("/doctor")["under_way"])


def test_nothing_differs_and_that_is_said_with_what_was_looked_at(coordinator: Coordinator, operator: Browser) -> None:
    code, told = typed(coordinator)
    assert code == 0
    assert told.startswith("no difference between what runs and the catalog: ")
    code, text = typed(coordinator, "--json")
    found = json.loads(text)
    assert (code, found["differences"], found["unasked"]) == (0, [], {})
    deployed = operator.get("/deployment")
    assert (found["fragments"], found["channels"]) == (len(deployed["fragments"]), len(deployed["channels"]))
    assert found["operators"] == len(operator.get("/placements"))


def test_a_fragment_that_lost_an_output_is_named(coordinator: Coordinator) -> None:
    host = coordinator.parts.host
    deployed = coordinator.parts.loop.deployer.deployment
    number, channel = next((c.sender, c.id) for c in deployed.channels.values())
    with host.between_steps({number}):
        outputs = host.routing.fragments[number].outputs
        host.routing.rewire({number: tuple(() for _ in outputs)})
        code, told = typed(coordinator)
        found = json.loads(typed(coordinator, "--json")[1])["differences"]
        host.routing.rewire({number: outputs})
    assert code == 1
    assert f"host: fragment {number} feeds channels [" in told
    assert ("1 difference between" in told, f"{channel}" in found[0]["what"]) == (True, True)
    assert [each["where"] for each in found] == ["host"]
    assert typed(coordinator)[0] == 0


def test_a_channel_that_is_cut_although_there_is_a_route_is_named(coordinator: Coordinator) -> None:
    host = coordinator.parts.host
    channel = next(iter(coordinator.parts.loop.deployer.deployment.channels.values()))
    assert ChannelId(channel.id) < OUTSIDE

    def cut(is_cut: bool) -> None:
        host.store.commit(Commit(rewire=(Rewire(channel.id, channel.receiver, is_cut=is_cut),)))

    cut(True)
    try:
        code, told = typed(coordinator)
    finally:
        cut(False)
    assert (code, f"host: channel {channel.id} is cut, but should not" in told) == (1, True)
    assert typed(coordinator)[0] == 0


def test_that_nothing_differs_was_said_although_a_site_could_not_be_asked(
    coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unasked() -> dict[str, Any]:
        return {"west": "it does not answer"}

    monkeypatch.setattr(coordinator.service.hosts, "inventories", unasked)
    code, told = typed(coordinator)
    assert code == 1
    assert "site west could not be asked: it does not answer" in told
    assert "no difference between what runs and the catalog, as far as sites could be asked" in told
