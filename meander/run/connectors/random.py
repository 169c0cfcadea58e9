"""`random`: values of the right type for any schema."""

from __future__ import annotations

from meander.model.streams import Stream
from meander.run.connectors.base import SourceKind, Surroundings
from meander.run.connectors.generator import OPTIONS, Generator
from meander.run.connectors.reachable import anywhere


def make(stream: Stream, surroundings: Surroundings) -> Generator:
    return Generator(stream)


KIND = SourceKind(make, OPTIONS, anywhere)
