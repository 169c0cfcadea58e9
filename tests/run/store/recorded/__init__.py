"""Stores that were written before there were types of records, each the one segment of its journal, packed.

`every-kind` has a note of every kind, some of them before its snapshot and some behind it. `host` is that of a host
with an overlap and a reconfiguration under way, a channel that is cut and a node that is gone (see
tests/reconfigure/test_recorded_stores.py). `site`, `site-drained` and `coordinator` are those of a fleet while state
moves between sites: a site to which a log and state come, one whose fragments have stopped, and the coordinator's
own, which has just decided.
"""

from __future__ import annotations

import lzma
from pathlib import Path

NAMES = ("every-kind", "host", "site", "site-drained", "coordinator")


def unpack(name: str, directory: Path) -> None:
    """Makes the directory of a recorded store."""
    directory.mkdir(parents=True)
    packed = Path(__file__).with_name(f"{name}.seg.xz")
    (directory / "journal-0000000001.seg").write_bytes(lzma.decompress(packed.read_bytes()))
