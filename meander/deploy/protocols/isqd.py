"""Incremental deployment: exactly the fragments that the change touches, all parts at the same time."""

from __future__ import annotations

from meander.deploy.protocols.base import Protocol

ISQD = Protocol("isqd", "changes only the fragments that a change touches, while all others run")
