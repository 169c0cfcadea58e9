"""Traces: what a collector of OpenTelemetry's receives over HTTP when queries are reconfigured."""

from __future__ import annotations

import gzip
import logging
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from meander.coordinator.read_model.traces import NoTraces, traces_from_environment

RECORD = {
    "number": 7,
    "cause": "link a to b removed",
    "status": "committed",
    "began_ms": 1_000_000,
    "ended_ms": 1_000_060,
    "phases_ms": {"placement": 2.0, "contexts": 5.0, "markers": 30.0, "state": 25.0},
    "fragments": 3,
    "moves": [{"operator": 1}, {"operator": 2}],
    "state_bytes": 4096,
}
MS = 1_000_000


class Collector:
    """Takes in what is sent to it, as bytes."""

    def __init__(self) -> None:
        received: list[tuple[str, bytes]] = []

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                packed = self.headers.get("Content-Encoding") == "gzip"
                received.append((self.path, gzip.decompress(body) if packed else body))
                self.send_response(200)
                self.send_header("Content-Type", "application/x-protobuf")
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                """Nobody reads it."""

        self.received = received
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


@pytest.fixture
def collector() -> Iterator[Collector]:
    found = Collector()
    yield found
    found.server.shutdown()
    found.server.server_close()


def test_a_collector_gets_a_span_for_each_phase(collector: Collector, monkeypatch: pytest.MonkeyPatch) -> None:
    proto = pytest.importorskip(
        "opentelemetry.proto.collector.trace.v1.trace_service_pb2",
        reason="the extra is not installed; run .venv/bin/pip install -e '.[otel]'",
    )
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.address)
    traces = traces_from_environment()
    traces.reconfiguration(RECORD)
    traces.close()
    assert [path for path, _ in collector.received] == ["/v1/traces"]
    sent = proto.ExportTraceServiceRequest.FromString(collector.received[0][1]).resource_spans[0]
    assert {a.key: a.value.string_value for a in sent.resource.attributes}["service.name"] == "meander"
    spans = {s.name: s for s in sent.scope_spans[0].spans}
    assert set(spans) == {"reconfiguration", "placement", "contexts", "markers", "state"}
    whole = spans.pop("reconfiguration")
    assert not whole.parent_span_id
    assert {s.parent_span_id for s in spans.values()} == {whole.span_id}
    assert {s.trace_id for s in spans.values()} == {whole.trace_id}
    numbers = {a.key: a.value.int_value for a in whole.attributes if a.value.HasField("int_value")}
    assert numbers == {
        "meander.reconfiguration": 7,
        "meander.fragments": 3,
        "meander.moves": 2,
        "meander.state_bytes": 4096,
    }
    began = (RECORD["began_ms"] - 2) * MS  # type: ignore[operator]
    took = {name: (s.start_time_unix_nano - began, s.end_time_unix_nano - began) for name, s in spans.items()}
    assert took == {
        "placement": (0, 2 * MS),
        "contexts": (2 * MS, 7 * MS),
        "markers": (7 * MS, 37 * MS),
        "state": (37 * MS, 62 * MS),
    }
    assert (whole.start_time_unix_nano - began, whole.end_time_unix_nano - began) == (0, 62 * MS)


def test_without_an_endpoint_nothing_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OTEL_EXPORTER_OTLP_ENDPOINT", raising=False)
    monkeypatch.delenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", raising=False)
    assert isinstance(traces_from_environment(), NoTraces)


def test_without_the_extra_a_line_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    with caplog.at_level(logging.WARNING):
        traces = traces_from_environment()
    traces.reconfiguration(RECORD)
    traces.close()
    assert isinstance(traces, NoTraces)
    assert "pip install '.[otel]'" in caplog.text
