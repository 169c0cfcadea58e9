"""The records between two sites over a broker: a topic for the two of them, and ranges that are signed.

Both ends know a secret that follows from the sender's key and the reader's name, and no third site does. The topic is
named after it, so that fleets that share a broker do not meet; and a record that is not signed with it is not taken.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from dataclasses import dataclass

import pyarrow as pa

from meander.run.channels.flight.ranges import RANGES, ChannelRange, DamagedError, from_batch
from meander.run.channels.flight.untrusted import read_untrusted

LONGEST_NAME = 80


@dataclass(frozen=True, slots=True)
class TopicLink:
    """The way from one site to another over a broker."""

    topic: str
    secret: bytes
    sender: str

    @staticmethod
    def between(sender: str, reader: str, shared: str) -> TopicLink:
        """`shared` is known to both sites."""
        names = (re.sub(r"[^a-zA-Z0-9]", "-", name)[:LONGEST_NAME] for name in (sender, reader))
        secret = hashlib.sha256(f"records {shared}".encode()).digest()
        return TopicLink(".".join(("meander", *names, hashlib.sha256(secret).hexdigest()[:16])), secret, sender)

    def record(self, ranges: pa.RecordBatch) -> tuple[bytes, bytes]:
        """Ranges as key and value of a record."""
        value = ranges.serialize().to_pybytes()
        return self._signature(value), value

    def ranges(self, key: bytes, value: bytes) -> list[ChannelRange]:
        """The inverse of `record`; raises DamagedError when the record is not signed by the sender."""
        if not hmac.compare_digest(self._signature(value), key):
            raise DamagedError(f"a record in topic {self.topic} is not the sender's; it was dropped")
        return from_batch(read_untrusted(value, RANGES))

    def _signature(self, value: bytes) -> bytes:
        return hmac.digest(self.secret, value, "sha256")
