"""Lets go on what was paused because something failed: streams, outlets and fragments."""

from __future__ import annotations

from meander.run.host import Host
from meander.run.overlap import NODE_GONE


def resume(host: Host, name: str | None = None) -> list[str]:
    """Tries again what is paused on a host, or only what has a name; says what that was.

    A name is that of a stream or of a query, whose outlets are meant, or such as `fragment 7`. Fragments of nodes that
    are gone wait for their nodes.
    """
    found: list[str] = []
    if (ingest := host.ingest) is not None:
        streams = [s for s, metrics in ingest.metrics().streams.items() if metrics.paused and name in (None, s)]
        for stream in streams:
            ingest.resume(stream)
        found += [f"stream {stream}" for stream in streams]
    if (delivery := host.delivery) is not None:
        outlets = [o for o in delivery.paused() if name in (None, o, o.split(" > ", maxsplit=1)[0])]
        for outlet in outlets:
            delivery.resume(outlet)
        found += [f"outlet {outlet}" for outlet in outlets]
    for fragment, reason in host.routing.paused.items():
        if name in (None, f"fragment {fragment}") and not reason.startswith(NODE_GONE):
            host.routing.resume(fragment)
            found.append(f"fragment {fragment}")
    host.wake()
    return found
