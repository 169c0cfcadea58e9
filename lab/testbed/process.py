"""One process of a test bed: started, stopped, paused, killed and started again, with all its children."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

COMMAND = (sys.executable, "-c", "from meander.cli.main import app; app()")
"""The command of this program, under any name on the path."""
ENDING_S = 60.0


@dataclass(slots=True)
class Process:
    """A command in a session of its own, so that signals reach its Java and its workers too."""

    name: str
    command: Sequence[str]
    log: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    starts: int = 0
    _begins: int = 0
    """The start of the log of the last start."""
    _running: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Starts it; a process that an earlier start left, such as a Java that was paused when its parent ended, is
        killed."""
        self._signal(signal.SIGKILL)
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as log:
            self._begins = log.tell()
            self._running = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, **self.environment},
                start_new_session=True,
            )
        self.starts += 1

    @property
    def number(self) -> int | None:
        """The process's number, while it runs."""
        return self._running.pid if self.runs and self._running is not None else None

    @property
    def runs(self) -> bool:
        return self._running is not None and self._running.poll() is None

    def has_said(self, text: str) -> bool:
        """Whether it has written something since it was last started."""
        if not self.log.exists():
            return False
        with self.log.open("rb") as log:
            log.seek(self._begins)
            return text.encode() in log.read()

    def kill(self) -> None:
        """SIGKILL: it has no time for anything."""
        self._signal(signal.SIGKILL)
        if self._running is not None:
            self._running.wait()

    def pause(self) -> None:
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def terminate(self) -> None:
        """SIGTERM, to the process alone: it ends its children itself."""
        self.resume()
        if self._running is not None:
            with contextlib.suppress(ProcessLookupError):
                self._running.terminate()

    def stop(self) -> int | None:
        """Asks it to end, and makes it when it takes too long; gives the exit code."""
        if self._running is None:
            return None
        self.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._running.wait(ENDING_S)
        self._signal(signal.SIGKILL)  # children that were left behind
        return self._running.wait()

    def last_words(self, most: int = 1500) -> str:
        return self.log.read_text(errors="replace")[-most:] if self.log.exists() else ""

    def _signal(self, number: signal.Signals) -> None:
        if self._running is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._running.pid, number)
