"""A topology file as one text."""

from __future__ import annotations

from meander.lang.topology.reader import TopologyFile, lines


def dump(contents: TopologyFile) -> str:
    return "".join(lines(contents))
