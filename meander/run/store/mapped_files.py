"""The file layer as the journal needs it: with files that are mapped into memory."""

from __future__ import annotations

import mmap
import os
from pathlib import Path

import pyarrow as pa

from meander.model.durable_files import Files


class SystemFiles(Files):
    """The real file system."""

    def map(self, path: Path) -> pa.Buffer:
        """The file's present bytes, mapped read-only. They stay readable after the file is deleted."""
        with path.open("rb") as file:
            if os.fstat(file.fileno()).st_size == 0:
                return pa.py_buffer(b"")
            return pa.py_buffer(mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ))
