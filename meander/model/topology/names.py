"""Names of nodes by id, and ids by name. Computed names take no memory, however many there are."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import overload

from meander.model.errors import InputError
from meander.model.ids import NodeId


class NumberedNames(Sequence[str]):
    """Groups of numbered names, each computed from its index and found without a table.

    >>> names = NumberedNames(("cloud", 2), ("sensor", 3))
    >>> list(names), names.find("sensor-2")
    (['cloud-1', 'cloud-2', 'sensor-1', 'sensor-2', 'sensor-3'], 3)
    """

    def __init__(self, *groups: tuple[str, int]) -> None:
        self._prefixes = [prefix for prefix, _ in groups]
        self._starts = [0, *accumulate(count for _, count in groups)]
        self._place = {prefix: place for place, prefix in enumerate(self._prefixes)}
        if len(self._place) < len(groups):
            raise InputError(f"numbered names need distinct prefixes, not {', '.join(self._prefixes)}")

    def __len__(self) -> int:
        return self._starts[-1]

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        if not -len(self) <= index < len(self):
            raise IndexError(f"name {index} of {len(self)}")
        index %= len(self)
        place = bisect_right(self._starts, index) - 1
        return f"{self._prefixes[place]}-{index - self._starts[place] + 1}"

    def find(self, name: str) -> int | None:
        """The index of a name, or None."""
        prefix, _, digits = name.rpartition("-")
        place = self._place.get(prefix)
        if place is None or not (digits.isascii() and digits.isdigit()) or digits[0] == "0":
            return None
        index = self._starts[place] + int(digits) - 1
        return index if index < self._starts[place + 1] else None


class NodeNames:
    """The names a topology was built with, followed by those of nodes added later."""

    def __init__(self, given: Sequence[str] = ()) -> None:
        self._given = given
        self._added: list[str] = []
        self._ids: dict[str, NodeId] | None = {} if isinstance(given, NumberedNames) else None

    def __len__(self) -> int:
        return len(self._given) + len(self._added)

    def __getitem__(self, node: NodeId) -> str:
        given = len(self._given)
        return self._given[node] if node < given else self._added[node - given]

    def find(self, name: str) -> NodeId | None:
        """The id of a name, alive or not, or None."""
        if self._ids is None:
            self._ids = self._index()
        found = self._ids.get(name)
        if found is None and isinstance(self._given, NumberedNames):
            index = self._given.find(name)
            return None if index is None else NodeId(index)
        return found

    def append(self, name: str) -> NodeId:
        """Gives the next id to a new name."""
        if self.find(name) is not None:
            raise InputError(f"node {name!r} appears twice")
        node = NodeId(len(self))
        self._added.append(name)
        assert self._ids is not None
        self._ids[name] = node
        return node

    def _index(self) -> dict[str, NodeId]:
        ids: dict[str, NodeId] = {}
        for index, name in enumerate(self._given):
            if ids.setdefault(name, NodeId(index)) != index:
                raise InputError(f"node {name!r} appears twice")
        return ids
