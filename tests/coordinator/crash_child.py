"""A coordinator in a process of its own, to be killed: python -m tests.coordinator.crash_child DIRECTORY TOPOLOGY."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

from meander.api.coordinator import running
from meander.coordinator.options import CoordinatorOptions
from tests.coordinator.world import QUERIES

if __name__ == "__main__":
    with running(Path(sys.argv[1]), Path(sys.argv[2]), CoordinatorOptions(port=0, first=QUERIES)) as coordinator:
        sys.stdout.write(f"{coordinator.address}\n")
        sys.stdout.flush()
        threading.Event().wait()
