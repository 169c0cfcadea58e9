"""Resumes parts that were paused because of a failure: streams, sink bindings and fragments."""

from __future__ import annotations

from collections.abc import Collection

from meander.model.ids import OperatorId
from meander.run.host import Host


def resume(host: Host, name: str | None = None, operators: Collection[OperatorId] = ()) -> list[str]:
    """Tries paused parts of a host again, or only those of a name; returns their names.

    A name is that of a stream or of a query, whose sink bindings are meant and the fragments of its `operators`, or
    such as `fragment 7`. Fragments of nodes that are gone wait for their nodes.
    """
    found: list[str] = []
    if (ingest := host.feeding.ingest) is not None:
        streams = [s for s, metrics in ingest.metrics().streams.items() if metrics.paused and name in (None, s)]
        for stream in streams:
            ingest.resume(stream)
        found += [f"stream {stream}" for stream in streams]
    if (delivery := host.delivery) is not None:
        sink_bindings = [o for o in delivery.paused() if name in (None, o, o.split(" > ", maxsplit=1)[0])]
        for binding in sink_bindings:
            delivery.resume(binding)
        found += [f"sink binding {binding}" for binding in sink_bindings]
    wanted, installed = set(operators), host.routing.fragments
    for fragment, pause in host.routing.pauses.items():
        mine = fragment in installed and not wanted.isdisjoint(installed[fragment].bound.members.operators)
        if pause.cause is not None and (mine or name in (None, f"fragment {fragment}")):
            host.routing.resume(fragment)
            found.append(f"fragment {fragment}")
    host.wake()
    return found
