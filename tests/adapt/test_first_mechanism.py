"""The first mechanism of a query: named, from metadata, or from forecasts when metadata alone would miss a demand."""

from __future__ import annotations

from dataclasses import replace

from meander.adapt.first_mechanism import beginning, by_metadata
from meander.lang.demands import parse_demands
from meander.place.mechanisms.base import Metadata
from tests.adapt.fakes import OPTIMISES, SETTINGS, FakeWorld, Q

KNOWN = {name: Metadata(aims, "") for name, aims in OPTIMISES.items()}


def world(**forecast_ms: float) -> FakeWorld:
    return FakeWorld(dict(forecast_ms), forecast_ms=forecast_ms, running={Q: "fast"})


def test_metadata_say_which_mechanism_to_ask_first() -> None:
    assert by_metadata(KNOWN, parse_demands("latency < 1 s"), "plain") == "fast"
    assert by_metadata(KNOWN, parse_demands("overhead < 1 kB"), "plain") == "frugal"
    assert by_metadata(KNOWN, parse_demands("hops < 3"), "plain") == "plain", "no aims match: the usual one"


def test_one_that_is_forecast_to_meet_the_demands_stays_and_no_other_is_asked() -> None:
    around = world(fast=50.0, frugal=10.0, plain=10.0)
    found = beginning(around, Q, parse_demands("latency < 100 ms"), SETTINGS, "fast")
    assert (found.mechanism, around.asked) == ("fast", 0)
    assert found.reason == "its metadata match the demands best; forecast latency 50 ms"


def test_one_that_is_forecast_to_miss_gives_way_to_the_one_that_comes_closest() -> None:
    found = beginning(
        world(fast=300.0, frugal=200.0, plain=150.0), Q, parse_demands("latency < 100 ms"), SETTINGS, "fast"
    )
    assert found.mechanism == "plain"
    assert found.reason == (
        "fast was asked first, but it is forecast latency 300 ms; forecast latency 150 ms, and none comes closer"
    )


def test_a_named_mechanism_stays_whatever_is_forecast() -> None:
    settings = replace(SETTINGS, first="fast")
    found = beginning(world(fast=300.0, plain=10.0), Q, parse_demands("latency < 100 ms"), settings, "fast")
    assert (found.mechanism, found.reason) == ("fast", "it was named for it")


def test_a_mechanism_that_breaks_is_left_out() -> None:
    around = world(fast=300.0, frugal=10.0, plain=20.0)
    around.broken["frugal"] = "no nodes"
    assert beginning(around, Q, parse_demands("latency < 100 ms"), SETTINGS, "fast").mechanism == "plain"
