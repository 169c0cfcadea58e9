"""Folders that commands write to: made, or refused, before anything that takes long."""

from __future__ import annotations

import os
from pathlib import Path

from meander.model.errors import InputError


def writable_folder(path: Path) -> Path:
    """The folder, made if it is not there. Raises InputError when nothing can be written to it."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        if isinstance(error, FileExistsError | NotADirectoryError):
            raise InputError("this is a file, not a folder; give another folder for results", str(path)) from None
        raise InputError(f"this folder cannot be made ({error.strerror}); give another one", str(path)) from None
    if not os.access(path, os.W_OK | os.X_OK):
        raise InputError("this folder cannot be written to; give another one, or change its permissions", str(path))
    return path
