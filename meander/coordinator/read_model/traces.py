"""Traces: one OpenTelemetry span for each reconfiguration, and one below it for each of its phases.

They are made when a reconfiguration has ended, from its record, so nothing waits for them. Without the SDK (the extra
`otel`) or without an endpoint nothing happens.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from typing import Any, Protocol

_log = logging.getLogger(__name__)
ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
PHASES = ("placement", "contexts", "markers", "state")
NANOS_PER_MS = 1_000_000


class Traces(Protocol):
    """Is told of every reconfiguration that ended."""

    def reconfiguration(self, record: Mapping[str, Any]) -> None: ...

    def close(self) -> None:
        """Sends all spans that have not been sent."""


class NoTraces:
    """Traces without a receiver."""

    def reconfiguration(self, record: Mapping[str, Any]) -> None:
        """Does nothing."""

    def close(self) -> None:
        """There is nothing to send."""


class SpanTraces:
    """Makes spans with a tracer of OpenTelemetry's."""

    def __init__(self, provider: Any, set_parent: Any) -> None:
        self._provider, self._tracer, self._set_parent = provider, provider.get_tracer("meander"), set_parent

    def reconfiguration(self, record: Mapping[str, Any]) -> None:
        phases = {name: record["phases_ms"].get(name) or 0.0 for name in PHASES}
        began = round((record["began_ms"] - phases["placement"]) * NANOS_PER_MS)
        attributes = {
            "meander.reconfiguration": record["number"],
            "meander.cause": record["cause"],
            "meander.status": record["status"],
            "meander.fragments": record["fragments"],
            "meander.moves": len(record["moves"]),
            "meander.state_bytes": record["state_bytes"],
        }
        whole = self._tracer.start_span("reconfiguration", start_time=began, attributes=attributes)
        at = began
        for name, took_ms in phases.items():
            span = self._tracer.start_span(name, context=self._set_parent(whole), start_time=at)
            at += round(took_ms * NANOS_PER_MS)
            span.end(end_time=at)
        whole.end(end_time=max(at, round((record["ended_ms"] or 0) * NANOS_PER_MS)))

    def close(self) -> None:
        self._provider.shutdown()


def traces_from_environment() -> Traces:
    """Spans for the endpoint that the environment names, if it names one and the extra is installed."""
    if not any(os.environ.get(name) for name in ENDPOINTS):
        return NoTraces()
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
        from opentelemetry.trace import set_span_in_context
    except ImportError:
        _log.warning(
            "an endpoint for traces is set, but nothing can be sent; in a checkout of Meander run pip install '.[otel]'"
        )
        return NoTraces()
    provider = TracerProvider(resource=Resource.create({"service.name": "meander"}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return SpanTraces(provider, set_span_in_context)
