"""The evidence of a test bed on which something went wrong, for later inspection: answers, logs and stores.

It has to be taken while the test bed is up: the disks of its sites go with it.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from lab.testbed.disks import FILLING
from lab.testbed.process_test_bed import ProcessTestBed

ANSWERS = ("sites", "deployment", "topology", "reconfigurations?limit=1000", "audit?limit=1000")


def keep(test_bed: ProcessTestBed, queries: Iterable[str]) -> Path:
    """Copies the test bed's files, and its coordinator's answers; gives the folder."""
    folder = Path(tempfile.mkdtemp(prefix="meander-kept-"))
    for path in (*ANSWERS, *(f"queries/{query}" for query in queries)):
        name = path.split("?")[0].replace("/", "-")
        (folder / f"{name}.json").write_text(json.dumps(test_bed.get(f"/{path}"), indent=1))
    with suppress(shutil.Error):  # the bed is up: some files are gone before they are copied
        shutil.copytree(test_bed.directory, folder / "bed", ignore=shutil.ignore_patterns(FILLING))
    return folder
