"""What is kept of a test bed on which something went wrong."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any, cast

from lab.testbed.disks import FILLING
from lab.testbed.evidence import keep
from lab.testbed.process_test_bed import ProcessTestBed


class Fallen:
    """A bed whose coordinator answers one question, and with a file that cannot be copied."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        (directory / "west").mkdir(parents=True)
        (directory / "west" / "journal").write_text("all of it")
        (directory / "west" / "gone").symlink_to(directory / "nowhere")
        (directory / "west" / FILLING).write_text("zeros")

    def get(self, path: str) -> Any:
        return [{"site": "west"}] if path == "/sites" else None


def test_answers_and_stores_are_kept_as_far_as_they_can_be_had(tmp_path: Path) -> None:
    folder = keep(cast(ProcessTestBed, Fallen(tmp_path / "bed")), ["counts"])
    try:
        assert json.loads((folder / "sites.json").read_text()) == [{"site": "west"}]
        assert json.loads((folder / "queries-counts.json").read_text()) is None
        assert {path.name for path in (folder / "bed" / "west").iterdir()} == {"journal"}
    finally:
        shutil.rmtree(folder)
