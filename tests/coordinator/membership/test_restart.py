"""A coordinator that ends and starts again under its sites, over TLS; and one that finds another in its place."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from meander.api.coordinator import running
from meander.coordinator.ledger.history import EventHistory
from meander.coordinator.membership.fleet import MemberFleet
from meander.coordinator.membership.store import MembershipStore
from meander.coordinator.options import CoordinatorOptions
from meander.coordinator.security.certificates import make
from meander.coordinator.security.tls import Tls
from meander.membership.client import MembershipClient
from meander.membership.fence import Fence
from meander.membership.http_client import CoordinatorClient, UnreachableError
from meander.membership.protocol import Description
from meander.model.errors import InputError
from meander.reconfigure.driver.fleet import ClientPool
from tests.api.conftest import Until
from tests.api.test_sites import Heard
from tests.coordinator.world import write_world


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def test_sites_stay_members_across_a_restart_and_the_newest_coordinator_is_the_only_one_that_acts(
    spark: SparkSession, tmp_path: Path, until: Until
) -> None:
    files = make(tmp_path / "certificates", ["hub"])[0]
    ca = tmp_path / "certificates" / "ca.pem"
    tls = Tls(files.certificate, files.key)
    tls.check()
    options = CoordinatorOptions(port=free_port(), tls=tls, session_timeout_ms=600_000)
    home, topology, heard, fence = tmp_path / "home", write_world(tmp_path), Heard(), Fence(tmp_path / "fence.json")
    with running(home, topology, options, spark) as first:
        assert first.address.startswith("https://")
        token = first.membership_service.membership.make_token("gateway", ["e1"], "operator")
        with pytest.raises(UnreachableError, match="is not trusted"):
            CoordinatorClient(first.address, token).ask("GET", "/health")
        description = Description("gateway", ({"name": "e1"},), "grpc://there:1", "one", "0.1.0", "hub:9092")
        client = MembershipClient(CoordinatorClient(first.address, token, ca), description, fence, heard)
        client.start()
        session = client.wait_joined(90).session
        until(lambda: heard.beats)
        assert fence.newest == first.membership_service.epoch
    until(lambda: heard.losses)
    with running(home, None, options, spark) as second:
        until(lambda: fence.newest == second.membership_service.epoch)
        assert second.membership_service.epoch.number == first.membership_service.epoch.number + 1
        beats = heard.beats
        until(lambda: heard.beats > beats)
        assert client.membership is not None
        assert (client.membership.session, heard.joins) == (session, [session])
        assert second.membership_service.membership.roster.site("gateway")["state"] == "here"
        assert second.membership_service.membership.roster.site("gateway")["broker"] == "hub:9092"
        told = ClientPool(MemberFleet(second.membership_service.membership), "key", home_broker="hub:9093").peers_of(
            "another"
        )
        assert {site: peer.get("broker") for site, peer in told.items()} == {"gateway": "hub:9092"}
        history = EventHistory(second.home.ledger)
        assert history.events(0, 100) == []

        other = MembershipStore(second.home.ledger)  # as somebody does who starts another one in spite of the lock
        newest = other.begin_epoch(0)
        with pytest.raises(InputError, match=f"a coordinator of epoch {newest.number} has taken over"):
            second.events([{"event": "node_removed", "node": "s2"}])
        assert second.stepped_down.wait(90)
        assert history.events(0, 100) == []
        history.close()
        with pytest.raises(InputError, match="has taken over"):
            second.events([{"event": "node_removed", "node": "s2"}])
        assert ("coordinator", "step down") in [(e["who"], e["did"]) for e in other.audit.newest(50)]
        other.close()
        client.stop()
