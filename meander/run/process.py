"""Other processes of this machine."""

from __future__ import annotations

import os


def is_running(process: int) -> bool:
    """Whether a process of this number exists."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
