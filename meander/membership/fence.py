"""The fence: which coordinator a site listens to. It is kept in a file, so that a restart does not forget it."""

from __future__ import annotations

import json
from pathlib import Path

from meander.membership.protocol import Epoch
from meander.model.durable_files import FILES
from meander.model.errors import InputError
from meander.model.locks import lock


class FencedError(InputError):
    """An order of a coordinator that is not the newest; nothing was done about it."""

    def __init__(self, message: str, newest: Epoch) -> None:
        super().__init__(message)
        self.newest = newest


class Fence:
    """The newest coordinator that was met, from any thread."""

    def __init__(self, path: Path | None = None) -> None:
        """Without a path, it is forgotten with the process."""
        self._path = path
        self._lock = lock("fence")
        self._newest = _read(path) if path is not None else None

    @property
    def newest(self) -> Epoch | None:
        return self._newest

    def accept(self, epoch: Epoch) -> None:
        """Raises when the coordinator of this epoch is not to be listened to; remembers it otherwise."""
        with self._lock:
            known = self._newest
            if known == epoch:
                return
            if known is not None and epoch.number <= known.number:
                raise FencedError(refusal(known, epoch), known)
            if self._path is not None:
                _write(self._path, epoch)
            self._newest = epoch


def refusal(known: Epoch, met: Epoch) -> str:
    """The reason why a coordinator is not obeyed, in words."""
    if met.number == known.number:
        return (
            f"another coordinator acts in epoch {known.number} already; two run on copies of one directory: "
            "stop one of them, and start the other again if it is to go on"
        )
    return f"a coordinator of epoch {known.number} has taken over from this one of epoch {met.number}; stop the old one"


def _read(path: Path) -> Epoch | None:
    try:
        return Epoch.of_json(json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"this does not say which coordinator was the last: {error}; remove it", str(path)) from None


def _write(path: Path, epoch: Epoch) -> None:
    """Replaces the file as a whole, on the disk before anything is done for the new coordinator."""
    FILES.replace(path, json.dumps(epoch.as_json()).encode())
