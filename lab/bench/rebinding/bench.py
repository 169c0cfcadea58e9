"""Does rebinding keep 150 queries quick when their binding does not fit the load?

On a real host with two slots, and in the model with as many slots as the published experiment had threads.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from lab.bench.report import Report

PLOTS = "MEANDER_PLOTS"
"""The environment variable that names a folder for plots."""


def run(quick: bool, progress: Callable[[str], None]) -> Report:
    """All parts; see `rebinding_parts`."""
    from lab.bench.rebinding.parts import report  # Spark is imported only when it is needed

    folder = os.environ.get(PLOTS)
    return report(quick, progress, Path(folder) if folder else None)
