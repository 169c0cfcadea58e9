"""Sites that are members no more: others do not answer them, and do not ask them, from the moment they hear of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from meander.reconfigure.agent.serving.peers import PeerDirectory
from meander.run.channels.flight.client import AwayError
from meander.run.store.store import Store

EAST = {"address": "grpc://127.0.0.1:1", "proof": "p", "broker": ""}


def test_a_revoked_site_is_known_as_one_also_after_a_restart_until_it_has_a_token_again(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "store")
    peers = PeerDirectory(store, "west", "key")
    peers.learn({"east": EAST})
    assert not peers.is_revoked("east")
    peers.learn({"east": {"address": "", "proof": ""}})
    store.close()
    store = Store.open(tmp_path / "store")
    peers = PeerDirectory(store, "west", "key")
    assert peers.is_revoked("east")
    assert not peers.is_revoked("coordinator")
    with pytest.raises(AwayError):
        peers.client_for("east")
    peers.learn({"east": {**EAST, "proof": "of its new token"}})
    assert not peers.is_revoked("east")
    assert peers.client_for("east").peer.proof == "of its new token"
    store.close()
