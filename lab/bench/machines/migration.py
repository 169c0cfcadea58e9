"""State on its way between sites, through relays, beside what the links can carry."""

from __future__ import annotations

from collections.abc import Callable

from lab.bench.report import Figure
from lab.testbed.chain import chain, is_limited, remarks

MBPS = 1_000.0
SIZES_MB, QUICK_SIZES_MB = (16, 128, 1_000), (16, 64)
RELAYS, QUICK_RELAYS = (1, 2, 4), (1, 4)
DATA = f"state over relays, links of {MBPS:g} Mbit/s"


def figures(quick: bool, progress: Callable[[str], None]) -> tuple[tuple[Figure, ...], tuple[str, ...]]:
    """Figures, and remarks on them."""
    found: list[Figure] = []
    relays = QUICK_RELAYS if quick else RELAYS
    with chain(max(relays), MBPS) as stops:
        for size in QUICK_SIZES_MB if quick else SIZES_MB:
            stops.fill(size * 1_000_000)
            for count in relays:
                name = f"{size} MB over {count} relays"
                progress(name)
                move = stops.moved(count)
                used = move.bytes * 8 / 1e6 / move.seconds
                found.append(Figure.of(name, "Mbit/s", [used]))
                if is_limited():
                    found.append(Figure.of(f"{name}: share of the bandwidth", "%", [100 * used / MBPS]))
    return tuple(found), remarks()
