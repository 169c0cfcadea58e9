"""Clients that try token after token: answered a few times, written down fewer times, and then told to wait."""

from __future__ import annotations

from meander.coordinator.security.failed_logins import ANSWERED, MOST_ADDRESSES, WINDOW_S, WRITTEN, FailedLogins


def test_a_stranger_who_tries_on_fills_no_log_and_has_to_wait() -> None:
    now = [0.0]
    failed = FailedLogins(lambda: now[0])
    told = [failed.failed("10.0.0.1") for _ in range(1_000)]
    assert told == [0] * WRITTEN + [None] * (1_000 - WRITTEN)
    assert failed.is_over("10.0.0.1")
    assert not failed.is_over("10.0.0.2")
    now[0] += WINDOW_S + 1
    assert not failed.is_over("10.0.0.1")
    assert failed.failed("10.0.0.1") == 1_000 - WRITTEN


def test_a_network_of_many_addresses_counts_as_one() -> None:
    failed = FailedLogins()
    for number in range(ANSWERED + 1):
        failed.failed(f"2001:db8::{number:x}")
    assert failed.is_over("2001:db8::ffff")
    assert not failed.is_over("2001:db8:0:1::1")


def test_addresses_without_end_take_no_more_room() -> None:
    failed = FailedLogins()
    for number in range(MOST_ADDRESSES + 500):
        failed.failed(f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}")
    assert len(failed._windows) <= MOST_ADDRESSES + 1
