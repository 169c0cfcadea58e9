"""Generators: functions of seed and time. Any cut of the time gives the same tuples; any position can be reopened."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from meander.model.errors import InputError
from meander.model.streams import Stream
from meander.run.connectors.base import SourceConnector
from tests.run.connectors.streams import START_MS, TRAIN, opened, stream

VEHICLE = "ts timestamp, id bigint, road string, x double, speed double, lane int"
WEATHER = "ts bigint, station string, temperature double, wind double, pressure float, humidity int, note string"
EVERYTHING = (
    "ts timestamp, a boolean, b int, c bigint, d float, e double, f string, g timestamp, h date, i binary, j array<int>"
)
STREAMS = {
    "trains": ("train", TRAIN),
    "vehicles": ("road", VEHICLE),
    "sensors": ("weather", WEATHER),
    "random": ("any", EVERYTHING),
}


def made(
    connector: str, more: Mapping[str, str] | None = None, /, *, nodes: int = 3, rate_tps: float = 20.0, **options: str
) -> Stream:
    name, columns = STREAMS[connector]
    given_options = {"connector": connector, **(more or {}), **options}
    return stream(name, columns, nodes=nodes, rate_tps=rate_tps, options=given_options)


def drawn(source: SourceConnector, until_ms: int, most_rows: int = 10**6) -> tuple[list[dict[str, object]], object]:
    """All tuples up to a time with their producers, and the offset behind them."""
    rows: list[dict[str, object]] = []
    offset = None
    while True:
        polled = source.poll(until_ms, most_rows)
        if polled is None:
            return rows, offset
        assert (np.diff(polled.producers) >= 0).all()
        named = zip(polled.table.to_pylist(), polled.producers.tolist(), strict=True)
        rows += [{**row, "_producer": producer} for row, producer in named]
        offset = polled.offset
        if not polled.more:
            return rows, offset


def by_producer(rows: list[dict[str, object]]) -> list[list[dict[str, object]]]:
    return [[r for r in rows if r["_producer"] == p] for p in range(3)]


@pytest.mark.parametrize("connector", STREAMS)
@given(cuts=st.lists(st.integers(1, 4000), min_size=1, max_size=6), most_rows=st.integers(1, 500))
def test_cuts_and_reopening_change_nothing(connector: str, cuts: list[int], most_rows: int) -> None:
    given_stream = made(connector, disorder="300ms", late="0.1", rate_tps=7.3)
    whole, _ = drawn(opened(given_stream), START_MS + sum(cuts))
    pieces: list[dict[str, object]] = []
    now, offset = START_MS, None
    for cut in cuts:
        now += cut
        source = opened(given_stream, offset=offset)
        rows, after = drawn(source, now, most_rows)
        pieces += rows
        offset = after or offset or {"epoch": START_MS, "at": START_MS - 1}
    assert by_producer(pieces) == by_producer(whole)


@pytest.mark.parametrize(("rate_tps", "seconds"), [(20.0, 10), (0.5, 60), (3333.0, 1), (1 / 3, 300)])
def test_rate_is_kept_by_every_producer(rate_tps: float, seconds: int) -> None:
    polled = opened(made("trains", rate_tps=rate_tps)).poll(START_MS + seconds * 1000, 10**7)
    assert polled is not None
    counts = np.bincount(polled.producers, minlength=3)
    assert np.abs(counts - rate_tps * seconds).max() <= 1


def test_event_time_is_the_time_of_emission() -> None:
    source = opened(made("sensors", rate_tps=50))
    before = START_MS
    for step in (40, 1, 700, 3):
        now = before + step
        polled = source.poll(now, 10**6)
        times = polled.table.column("ts").to_pylist() if polled else []
        assert all(before - 1 < t <= now for t in times)
        before = now


def test_disorder_is_bounded_and_late_tuples_are_beyond_it() -> None:
    def lags(**options: str) -> NDArray[np.int64]:
        polled = opened(made("sensors", options, nodes=1, rate_tps=1000)).poll(START_MS + 5000, 10**6)
        assert polled is not None
        times = np.asarray(polled.table.column("ts"))
        behind: NDArray[np.int64] = np.maximum.accumulate(times) - times
        return behind

    assert lags().max() == 0
    assert 0 < lags(disorder="200ms").max() <= 200
    late = lags(disorder="200ms", late="0.05", late_by="1s") > 200
    assert 0.02 < late.mean() < 0.06


def test_seeds_give_other_values_and_nodes_keep_theirs() -> None:
    def speeds(seed: str, nodes: int = 3) -> list[object]:
        rows, _ = drawn(opened(made("random", nodes=nodes, seed=seed)), START_MS + 1000)
        return [r["e"] for r in rows if r["_producer"] == 1]

    assert speeds("1") == speeds("1", nodes=5)
    assert speeds("1") != speeds("2")


def test_trains_drive_as_their_speed_says() -> None:
    columns = "ts timestamp, id int, train string, station string, position double, speed double, lap int"
    one = stream("train", columns, nodes=2, rate_tps=10, options={"connector": "trains"})
    polled = opened(one).poll(START_MS + 900_000, 10**6)
    assert polled is not None
    table = polled.table.filter(pa.array(polled.producers == 1))
    speed, position = np.asarray(table.column("speed")), np.asarray(table.column("position"))
    moved = np.diff(position) % 9000
    assert np.abs(moved - (speed[1:] + speed[:-1]) / 2 * 0.1).max() < 0.02
    assert speed.min() == 0
    assert speed.max() == 25
    assert set(table.column("station").to_pylist()) == {f"station-{i}" for i in range(1, 7)}
    assert set(table.column("id").to_pylist()) == {2}
    assert set(table.column("train").to_pylist()) == {"train-2"}
    assert max(table.column("lap").to_pylist()) >= 1


def test_passengers_change_only_at_stations() -> None:
    polled = opened(made("trains", nodes=1, rate_tps=10)).poll(START_MS + 600_000, 10**6)
    assert polled is not None
    passengers = np.asarray(polled.table.column("passengers"))
    stations = np.asarray(polled.table.column("station").combine_chunks().dictionary_encode().indices)
    changed = np.flatnonzero(np.diff(passengers))
    assert changed.size > 2
    assert set(changed.tolist()) <= set(np.flatnonzero(np.diff(stations)).tolist())


def test_vehicles_drive_as_their_speed_says_and_meet_congestion() -> None:
    polled = opened(made("vehicles", nodes=1, rate_tps=100, vehicles="10")).poll(START_MS + 300_000, 10**6)
    assert polled is not None
    table = polled.table.filter(pc.equal(polled.table.column("id"), polled.table.column("id")[0]))
    speed, x = np.asarray(table.column("speed")), np.asarray(table.column("x"))
    moved = np.diff(x) % 10_000
    assert np.abs(moved - (speed[1:] + speed[:-1]) / 2 * 0.1).max() < 0.05
    assert speed.min() < 5
    assert speed.max() > 25
    assert set(polled.table.column("road").to_pylist()) == {"road-1"}
    assert set(polled.table.column("lane").to_pylist()) <= {0, 1, 2}


def test_sudden_brakes_happen() -> None:
    """A vehicle is fast and within five seconds slow: what the example query looks for."""
    polled = opened(made("vehicles", nodes=1, rate_tps=200)).poll(START_MS + 120_000, 10**6)
    assert polled is not None
    table = polled.table
    found = 0
    for vehicle in set(table.column("id").to_pylist()):
        own = table.filter(pc.equal(table.column("id"), vehicle))
        times = pc.cast(own.column("ts"), pa.int64()).to_numpy() // 1000
        speed = np.asarray(own.column("speed"))
        fast, slow = times[speed > 25], times[speed < 10]
        found += sum(((slow > t) & (slow <= t + 5000)).any() for t in fast)
    assert found > 0


def test_sensors_visit_all_regions_and_have_storms() -> None:
    polled = opened(made("sensors", nodes=2, rate_tps=1)).poll(START_MS + 600_000, 10**6)
    assert polled is not None
    assert set(polled.table.column("station").to_pylist()) == {f"station-{i}" for i in range(1, 7)}
    wind = np.asarray(polled.table.column("wind"))
    assert (wind > 20).any()
    assert (wind < 8).any()
    assert 990 < np.asarray(polled.table.column("pressure")).mean() < 1030


def test_random_values_stay_in_their_ranges() -> None:
    given_stream = made("random", {"range.b": "5..7", "values.f": "red, green", "range.e": "-1..1"}, rate_tps=200)
    polled = opened(given_stream).poll(START_MS + 2000, 10**6)
    assert polled is not None
    assert set(polled.table.column("b").to_pylist()) == {5, 6, 7}
    assert set(polled.table.column("f").to_pylist()) == {"red", "green"}
    assert -1 <= min(polled.table.column("e").to_pylist()) < 0
    assert {len(v) for v in polled.table.column("j").to_pylist()} == {0, 1, 2, 3}


def test_a_limited_stream_ends() -> None:
    source = opened(made("random", tuples="10"))
    polled = source.poll(START_MS + 60_000, 10**6)
    assert polled is not None
    assert (len(polled.table), polled.ended) == (30, True)
    assert source.poll(START_MS + 70_000, 10**6) is None
    assert opened(made("random", tuples="10"), offset=polled.offset).poll(START_MS + 70_000, 10**6) is None


@pytest.mark.parametrize(
    ("connector", "columns", "options", "message"),
    [
        ("trian", TRAIN, {}, "stream 'train': no connector 'trian'; known connectors: trains, "),
        ("trains", TRAIN, {"stretch": "5"}, "stream 'train': no option 'stretch'; known options: stretch_m"),
        ("trains", TRAIN, {"top_speed": "fast"}, "option 'top_speed' is 'fast'; expected a number from 0.1 on"),
        (
            "trains",
            "ts timestamp, speed boolean",
            {},
            "column 'speed' is boolean, but this connector gives it as a number",
        ),
        ("trains", TRAIN, {"disorder": "5"}, "stream 'train': option 'disorder': duration '5' has no unit"),
        ("random", TRAIN, {"range.speed": "5"}, "option 'range.speed' is '5'; expected two numbers such as 0..40"),
        ("random", TRAIN, {"values.speed": "a,b"}, "option 'values.speed' is 'a,b'; expected values of type double"),
    ],
)
def test_mistakes_are_named(connector: str, columns: str, options: dict[str, str], message: str) -> None:
    with pytest.raises(InputError) as caught:
        opened(stream("train", columns, options={"connector": connector, **options}))
    assert message in str(caught.value)
