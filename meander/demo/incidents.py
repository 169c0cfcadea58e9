"""The incidents of the demo, and their repair: a node fails, a link is cut, a query asks for something else, or gets
another mechanism."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Event = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Incident:
    """Something that happens at a time after the changes began."""

    at_s: float
    text: str
    node: str | None = None
    """A node that fails, or comes back."""
    link: tuple[str, str] | None = None
    """A link that is cut, or mended."""
    over: bool = False
    """Whether this is the end of an earlier one."""
    query: str | None = None
    demands: tuple[str, ...] = ()
    mechanisms: tuple[str, ...] = ()
    """Mechanisms to one of which the query switches by `auto`: the first that does not place it yet."""


SCRIPT: tuple[Incident, ...] = (
    Incident(8, "exchange-1 fails: windows and joins move to exchange-2 with their state", node="exchange-1"),
    Incident(16, "exchange-1 is back", node="exchange-1", over=True),
    Incident(22, "the link between base-9 and gateway-2 is cut", link=("base-9", "gateway-2")),
    Incident(28, "the link between base-9 and gateway-2 is mended", link=("base-9", "gateway-2"), over=True),
    Incident(
        32,
        "station_load asks for less network usage",
        query="station_load",
        demands=("latency < 10 s", "network_usage < 10 kB"),
    ),
    Incident(
        36,
        "full_trains switches to another mechanism, by auto: the tab with decisions says how it moves and why",
        query="full_trains",
        mechanisms=("top_down", "bottom_up"),
    ),
)
PERIOD_S = 60.0
"""After this time the script begins again."""


class Incidents:
    """Turns the script into events, given what the world looks like when something happens."""

    def __init__(self, script: Sequence[Incident] = SCRIPT) -> None:
        self._script = script
        self._next = 0
        self._kept: dict[str, list[Event]] = {}
        """The events that bring a link back, by its ends."""

    def due(self, elapsed_s: float, until_s: float | None) -> Incident | None:
        """The next incident whose time has come. None begins whose end would be too late to be seen."""
        turn, number = divmod(self._next, len(self._script))
        incident = self._script[number]
        if elapsed_s < turn * PERIOD_S + incident.at_s:
            return None
        self._next += 1
        left_s = float("inf") if until_s is None else until_s - elapsed_s
        begins = not incident.over and incident.query is None
        return None if begins and left_s < self._lasts(number) else incident

    def _lasts(self, number: int) -> float:
        ends = [i for i in self._script[number:] if i.over]
        return ends[0].at_s - self._script[number].at_s if ends else 0.0

    def events(self, incident: Incident, topology: Mapping[str, Any]) -> list[Event]:
        """Events that make it happen; none if a user was faster."""
        if incident.node is not None:
            alive = any(n["name"] == incident.node and n["alive"] for n in topology["nodes"])
            return [{"event": "node_removed", "node": incident.node}] if alive and not incident.over else []
        if incident.link is not None:
            return self._link(incident, topology)
        return []

    def restores(self, incident: Incident, topology: Mapping[str, Any]) -> list[str]:
        """Nodes that come back as they were: the coordinator keeps their records."""
        gone = [n["name"] for n in topology["nodes"] if not n["alive"]]
        return [name for name in gone if incident.over and name == incident.node]

    def _link(self, incident: Incident, topology: Mapping[str, Any]) -> list[Event]:
        assert incident.link is not None
        ends = set(incident.link)
        there = next((link for link in topology["links"] if {link["a"], link["b"]} == ends), None)
        key = " ".join(sorted(ends))
        if incident.over:
            alive = {n["name"] for n in topology["nodes"] if n["alive"]}
            return [] if there or not ends <= alive else self._kept.pop(key, [])
        if there is None:
            return []
        self._kept[key] = [_added(there)]
        one_way = {"directed": True} if there.get("directed") else {}
        return [{"event": "link_removed", "source": there["a"], "target": there["b"], **one_way}]


def _added(link: Mapping[str, Any]) -> Event:
    known = {k: link[k] for k in ("latency_ms", "bandwidth_mbps", "directed") if k in link}
    return {"event": "link_added", "source": link["a"], "target": link["b"], **known}
