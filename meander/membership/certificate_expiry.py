"""The end of certificates: one that is over is refused at the start, one that soon is shows in `health`.

Nobody can connect to a process whose certificate is over, and those that are connected already go on, so it is not
noticed until something else happens.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from meander.model.clock import wall_clock_ms
from meander.model.errors import InputError

SOON_MS = 14 * 24 * 3_600_000
REMEDY = "make another one with `meander certificates`, and start again with it"


@functools.lru_cache(maxsize=8)
def end_ms(certificate: bytes) -> int | None:
    """The time at which a certificate is over; None for what is not one."""
    from cryptography import x509  # which takes long to import

    try:
        return round(x509.load_pem_x509_certificate(certificate).not_valid_after_utc.timestamp() * 1000)
    except ValueError:
        return None


def check_not_over(path: Path) -> None:
    """Raises for a certificate that nobody would accept any more."""
    end = end_ms(path.read_bytes())
    if end is not None and end <= wall_clock_ms():
        raise InputError(f"this certificate was good until {_shown(end)}; {REMEDY}", str(path))


def expiry_problems(certificate: bytes, clock: Callable[[], int] = wall_clock_ms) -> list[str]:
    """A certificate that is over, or will be in two weeks, in words."""
    end = end_ms(certificate)
    if end is None or end > (now := clock()) + SOON_MS:
        return []
    if end <= now:
        return [f"its certificate was good until {_shown(end)}: nobody can connect any more; {REMEDY}"]
    days = math.ceil((end - now) / (24 * 3_600_000))
    return [f"its certificate is good until {_shown(end)}, {days} more days; {REMEDY}"]


def _shown(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M UTC")
