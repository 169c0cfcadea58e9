"""An edge list: `source,target[,latency_ms[,bandwidth_mbps]]`, one link a line, both ways.

A first line that begins with `source` is a header; lines that begin with # are remarks. Nodes appear in the order in
which they are named; those whose names begin with `sensor` or `cloud` are of that kind, all others are edges.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from meander.lang.importers.imported import Imported
from meander.lang.topology.reader import DEFAULT_LATENCY_MS, DEFAULT_SLOTS, TopologyFile
from meander.lang.topology.yaml_fields import number
from meander.model.errors import InputError
from meander.model.text_files import read_text
from meander.model.topology.elements import UNLIMITED, NodeKind
from meander.model.topology.graph import Topology, topology_of_columns

COLUMNS = ("source", "target", "latency_ms", "bandwidth_mbps")


def import_edge_list(path: Path, repair: bool = False) -> Imported:
    """Reads an edge list; repair drops links that lead nowhere or are there already, in either direction."""
    index: dict[str, int] = {}
    first_line: dict[tuple[int, int], int] = {}
    latency_ms: list[float] = []
    bandwidth_mbps: list[float] = []
    dropped = 0
    for line, text in enumerate(read_text(path).splitlines(), 1):
        if not text.strip() or text.startswith("#") or (not index and text.split(",")[0].strip().lower() == "source"):
            continue
        try:
            source, target, latency, bandwidth = _link(text)
            ends = tuple(index.setdefault(name, len(index)) for name in (source, target))
            pair = (min(ends), max(ends))
            if source == target or pair in first_line:
                if not repair:
                    problem = (
                        "leads nowhere; its two ends must differ"
                        if source == target
                        else f"exists already, from line {first_line[pair]}"
                    )
                    raise InputError(f"link {source!r} to {target!r} {problem}; --repair drops it")
                dropped += 1
                continue
        except InputError as error:
            raise error.at(f"{path}, line {line}") from None
        first_line[pair] = line
        latency_ms.append(latency)
        bandwidth_mbps.append(bandwidth)
    if not index:
        raise InputError("the file has no links; one line source,target for each expected", str(path))
    topology = _topology(list(index), list(first_line), latency_ms, bandwidth_mbps)
    notes: tuple[str, ...] = ("nodes are edges unless their names begin with sensor or cloud",)
    if dropped:
        notes += (f"{dropped} doubled or empty {'link' if dropped == 1 else 'links'} dropped",)
    return Imported(TopologyFile(topology, {}, {}), notes=notes)


def _topology(
    names: list[str], pairs: list[tuple[int, int]], latency_ms: list[float], bandwidth_mbps: list[float]
) -> Topology:
    kinds = [_kind(name) for name in names]
    ends = np.array(pairs, dtype=np.int32).reshape(-1, 2)
    with np.errstate(over="ignore"):
        return topology_of_columns(
            names,
            np.array(kinds, dtype=np.uint8),
            np.array([DEFAULT_SLOTS[kind] for kind in kinds], dtype=np.int32),
            ends[:, 0].copy(),
            ends[:, 1].copy(),
            np.array(latency_ms, dtype=np.float64).astype(np.float32),
            bandwidth_mbps=np.array(bandwidth_mbps, dtype=np.float64).astype(np.float32),
        )


def _link(text: str) -> tuple[str, str, float, float]:
    cells = [cell.strip() for cell in text.split(",")]
    if not 2 <= len(cells) <= len(COLUMNS) or not all(cells[:2]):
        raise InputError(f"{','.join(COLUMNS[:2])}[,{'[,'.join(COLUMNS[2:])}]] expected, not {text.strip()!r}")
    latency = number(cells[2], COLUMNS[2]) if len(cells) > 2 and cells[2] else DEFAULT_LATENCY_MS
    bandwidth = number(cells[3], COLUMNS[3]) if len(cells) > 3 and cells[3] else UNLIMITED
    return cells[0], cells[1], latency, bandwidth


def _kind(name: str) -> NodeKind:
    for kind in (NodeKind.SENSOR, NodeKind.CLOUD):
        if name.lower().startswith(kind.name.lower()):
            return kind
    return NodeKind.EDGE
