"""The status of a running host as a file, so that others can look without asking the process.

It is written as a whole about once a second and says which process wrote it and when. Whether that process still runs
is decided by the reader, since one that was killed could not say goodbye.
"""

from __future__ import annotations

import contextlib
import json
import logging
import math
import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from meander.model.errors import InputError
from meander.model.locks import lock
from meander.run.periodic import PeriodicThread
from meander.run.process import is_running

if TYPE_CHECKING:
    from meander.run.host import HostStatus  # which brings Spark along

NAME = "status.json"
STALE_S = 30.0
"""The age from which a status counts as that of an ended process, whatever its number says."""
STARTING_S = 120.0
"""The time that starting may take."""

_log = logging.getLogger(__name__)


class RunPhase(StrEnum):
    STARTING = "starting"
    RUNNING = "running"
    DRAINING = "draining"
    CHECKING = "checking"
    ENDED = "ended"


class StatusFile(PeriodicThread):
    """Writes the answer of `ask`, now and then and at the end, into a directory. The host's owner sets `phase`."""

    def __init__(self, directory: Path, ask: Callable[[], HostStatus], interval_s: float = 1.0) -> None:
        super().__init__("status", interval_s, self.write)
        self.path, self.ask = directory / NAME, ask
        self.phase = RunPhase.RUNNING
        self._started = time.time()
        self._writing = lock("status file")

    def __enter__(self) -> StatusFile:
        self.write()
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        self.phase = RunPhase.ENDED
        self.write()

    def write(self) -> None:
        with self._writing:
            _write(self.path, self.phase, self._started, _finite(asdict(self.ask())))


def announce(directory: Path) -> None:
    """Says that a run is about to begin there."""
    _write(directory / NAME, RunPhase.STARTING, time.time(), None)


def _write(path: Path, phase: RunPhase, started: float, status: dict[str, Any] | None) -> None:
    """Writes beside the file and puts it in place. A full disk must not end the host."""
    content = {"process": os.getpid(), "phase": phase, "started": started, "written": time.time(), "status": status}
    partial = path.with_name(f".{NAME}.{os.getpid()}")
    try:
        partial.write_text(json.dumps(content, indent=2))
        os.replace(partial, path)
    except OSError as error:
        _log.warning("the status is not written: %s", error)
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)


def _finite(value: Any) -> Any:
    """JSON has no NaN."""
    match value:
        case float():
            return value if math.isfinite(value) else None
        case dict():
            return {str(k): _finite(v) for k, v in value.items()}
        case list() | tuple():
            return [_finite(v) for v in value]
    return value


@dataclass(frozen=True, slots=True)
class SeenStatus:
    """The content of a status file, and whether its writer still runs."""

    process: int
    phase: RunPhase
    running: bool
    seconds: float
    """The run time so far, or in all."""
    age_s: float
    """The age of this status."""
    status: dict[str, Any] | None
    """None while it starts."""


def read_status(directory: Path, now: float | None = None) -> SeenStatus | None:
    """The newest status in a directory; None if no host ever wrote one there."""
    path = directory / NAME
    try:
        found = json.loads(path.read_text())
        written, started = float(found["written"]), float(found["started"])
        process, phase, status = int(found["process"]), RunPhase(found["phase"]), found["status"]
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"this is not the status of a run: {error}; remove the file", str(path)) from None
    age_s = max(0.0, (time.time() if now is None else now) - written)
    silent = age_s > (STARTING_S if phase is RunPhase.STARTING else STALE_S)
    running = phase is not RunPhase.ENDED and not silent and is_running(process)
    return SeenStatus(process, phase, running, written - started, age_s, status)
