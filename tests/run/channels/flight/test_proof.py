"""Proofs under attack: guessed, repeated, borrowed, too old, or made with what is written down somewhere."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import pytest

from meander.run.channels.flight.proof import (
    FOR,
    MOST_CONNECTIONS,
    PERIOD_S,
    ROUTE,
    SKEW_S,
    WINDOW,
    ClientProof,
    ProofChecker,
    end_of_proofs,
    former_key_of,
    former_proof,
    key_of,
    opened,
    proof,
    sealed,
)

TOKEN = "the token of east"
KEY, NOW = key_of(TOKEN), 1_800_000_000.0


def checker(at: float = NOW, former: Callable[[], str | None] = lambda: None) -> ProofChecker:
    return ProofChecker(KEY, former, lambda: at)


def west(at: float = NOW) -> ClientProof:
    return ClientProof(proof(KEY, "west", end_of_proofs(at)))


def test_each_request_counts_once() -> None:
    east, requests = checker(), west()
    first, second = requests.shown(), requests.shown()
    assert east.is_shown("west", second)
    assert east.is_shown("west", first), "requests may overtake each other"
    assert not east.is_shown("west", first)
    assert not east.is_shown("west", second)
    assert east.is_shown("west", west().shown()), "another connection has numbers of its own"


def test_the_secret_of_a_proof_is_not_in_what_is_sent() -> None:
    given = proof(KEY, "west")
    shown = ClientProof(given).shown()
    assert given.split(".")[2] not in shown
    assert KEY not in shown


@pytest.mark.parametrize(
    ("peer", "shown"),
    [
        ("west", ""),
        ("west", "Bearer "),
        ("west", "Meander "),
        ("west", "Meander x.y.z"),
        ("west", f"Meander {end_of_proofs(NOW)}.a-1.{'0' * 64}"),
        ("west", f"Meander {'9' * 11}.a-1.{'0' * 64}"),
        ("west", "Meander \u0662.\u0662-\u0662.\u0662"),
        ("north", west().shown()),
        ("coordinator", west().shown()),
        ("west", ClientProof(proof(key_of("another token"), "west", end_of_proofs(NOW))).shown()),
        ("west", ClientProof(proof(former_key_of(TOKEN), "west", end_of_proofs(NOW))).shown()),
        ("west", ClientProof(proof(hashlib.sha256(TOKEN.encode()).hexdigest(), "west", end_of_proofs(NOW))).shown()),
        ("coordinator", ClientProof(former_proof(former_key_of(TOKEN), "coordinator")).shown()),
    ],
)
def test_what_is_not_this_clients_proof_is_refused(peer: str, shown: str) -> None:
    assert not checker().is_shown(peer, shown)


def test_a_proof_ends() -> None:
    end = end_of_proofs(NOW)
    assert PERIOD_S < end - NOW <= 2 * PERIOD_S
    assert checker(end + SKEW_S - 1).is_shown("west", west().shown())
    assert not checker(end + SKEW_S + 1).is_shown("west", west().shown())
    assert not checker(end + SKEW_S + 1).is_shown("west", f"Bearer {proof(KEY, 'west', end)}")
    for_ever = proof(KEY, "west", end + 10 * PERIOD_S)  # which nobody gives out
    assert not checker().is_shown("west", ClientProof(for_ever).shown())


def test_a_site_of_the_version_before_shows_what_it_was_told() -> None:
    told = f"Bearer {proof(KEY, 'west', end_of_proofs(NOW))}"
    assert checker().is_shown("west", told)
    assert not checker().is_shown("north", told)


def test_hashes_prove_something_only_while_the_coordinator_is_of_the_version_before() -> None:
    shown = ClientProof(former_proof(former_key_of(TOKEN), "coordinator")).shown()
    spoken: list[str | None] = [former_key_of(TOKEN)]
    east = checker(former=lambda: spoken[0])
    assert east.is_shown("coordinator", shown)
    spoken[0] = None
    assert not east.is_shown("coordinator", shown)


def test_a_relay_can_pass_a_ticket_on_once_and_not_change_it() -> None:
    ticket = west().signed({"pull": {"7": [0, 0]}, FOR: "west"})
    east = checker()
    for changed in ({"pull": {"7": [9, 9]}}, {FOR: "north"}, {"until": ticket["until"] + 1}, {"number_once": "a-1"}):
        assert not east.is_signed(str(changed.get(FOR, "west")), {**ticket, **changed})
    passed: dict[str, Any] = {**ticket, ROUTE: []}
    assert east.is_signed("west", passed)
    assert not east.is_signed("west", passed)


def test_a_ticket_of_the_version_before_is_taken_while_its_proof_is_good() -> None:
    given = proof(KEY, "west", end_of_proofs(NOW - PERIOD_S))
    requests = ClientProof(given.replace("2.", "x.", 1))
    former = {"pull": {}, FOR: "west"}
    from meander.run.channels.flight import proof as module

    signed = {**former, "signed": module._signature(given, former)}
    assert checker().is_signed("west", signed)
    assert not checker(NOW + 5 * PERIOD_S).is_signed("west", signed)
    assert not checker().is_signed("north", signed)
    assert not checker().is_signed("west", requests.signed(former))


def test_numbers_that_are_remembered_are_bounded() -> None:
    east, requests = checker(), west()
    shown = [requests.shown() for _ in range(3 * WINDOW)]
    assert all(east.is_shown("west", each) for each in shown)
    assert not any(east.is_shown("west", each) for each in shown[:: WINDOW // 4])
    numbers = next(iter(east._seen["west"].values()))
    assert len(numbers.used) <= 2 * WINDOW
    for _ in range(MOST_CONNECTIONS + 10):
        assert east.is_shown("west", west().shown())
    assert len(east._seen["west"]) <= MOST_CONNECTIONS


def test_what_is_kept_is_of_use_to_its_owner_only() -> None:
    kept = sealed(KEY, "a proof")
    assert "a proof" not in kept
    assert opened(KEY, kept) == "a proof"
    assert opened(key_of("another token"), kept) is None
    assert opened(KEY, kept[:-4] + "AAA=") is None
    assert opened(KEY, "what a version before kept") == "what a version before kept"


def test_a_clock_that_is_set_shuts_nobody_out(monkeypatch: pytest.MonkeyPatch) -> None:
    east, requests = ProofChecker(KEY), ClientProof(proof(KEY, "west"))
    monkeypatch.setattr("time.time", lambda: NOW * 2)
    monkeypatch.setattr("time.time_ns", lambda: int(NOW * 2e9))
    assert east.is_shown("west", requests.shown())
    assert east.is_shown("west", ClientProof(proof(KEY, "west")).shown())
