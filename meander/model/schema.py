"""Data types, fields and schemas: what a tuple looks like. Type names are Spark SQL's."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum

from meander.model.errors import InputError, unknown


class Kind(Enum):
    """The family of a data type, by its Spark SQL name."""

    BOOLEAN = "boolean"
    INT = "int"
    BIGINT = "bigint"
    FLOAT = "float"
    DOUBLE = "double"
    STRING = "string"
    TIMESTAMP = "timestamp"
    DATE = "date"
    BINARY = "binary"
    ARRAY = "array"
    NULL = "void"


_WIDTH = {Kind.INT: 1, Kind.BIGINT: 2, Kind.FLOAT: 3, Kind.DOUBLE: 4}
_ALIASES = {
    "bool": "boolean",
    "integer": "int",
    "smallint": "int",
    "tinyint": "int",
    "long": "bigint",
    "real": "float",
    "text": "string",
    "varchar": "string",
    "int64": "bigint",
    "int32": "int",
    "float64": "double",
    "float32": "float",
}


@dataclass(frozen=True, slots=True)
class DataType:
    """A scalar type, or an array of one."""

    kind: Kind
    element: DataType | None = None

    def __post_init__(self) -> None:
        if (self.kind is Kind.ARRAY) != (self.element is not None):
            raise InputError("only an array has an element type; write array<double>")

    @property
    def is_numeric(self) -> bool:
        return self.kind in _WIDTH

    @property
    def is_integral(self) -> bool:
        return self.kind in (Kind.INT, Kind.BIGINT)

    def __str__(self) -> str:
        return f"array<{self.element}>" if self.element else self.kind.value

    @staticmethod
    def parse(text: str) -> DataType:
        """Reads a type name as Spark SQL spells it, or one of its usual aliases.

        >>> str(DataType.parse("Array<long>"))
        'array<bigint>'
        """
        name = text.strip().lower()
        if name.startswith("array<") and name.endswith(">"):
            return DataType(Kind.ARRAY, DataType.parse(name[6:-1]))
        name = _ALIASES.get(name, name)
        scalars = [k.value for k in Kind if k not in (Kind.ARRAY, Kind.NULL)]
        if name not in scalars:
            raise unknown("type", text.strip(), [*scalars, "array<double>"])
        return DataType(Kind(name))


BOOLEAN, INT, BIGINT, FLOAT, DOUBLE, STRING, TIMESTAMP, DATE, BINARY, NULL = (
    DataType(k)
    for k in (
        Kind.BOOLEAN,
        Kind.INT,
        Kind.BIGINT,
        Kind.FLOAT,
        Kind.DOUBLE,
        Kind.STRING,
        Kind.TIMESTAMP,
        Kind.DATE,
        Kind.BINARY,
        Kind.NULL,
    )
)


def common_type(a: DataType, b: DataType) -> DataType | None:
    """The type both can be read as without losing meaning, or None: numbers widen, null fits everything."""
    if a == b or b.kind is Kind.NULL:
        return a
    if a.kind is Kind.NULL:
        return b
    if a.is_numeric and b.is_numeric:
        if Kind.FLOAT in (a.kind, b.kind) and (a.is_integral or b.is_integral):
            return DOUBLE  # a float holds neither exactly, so Spark takes the wider one
        return a if _WIDTH[a.kind] > _WIDTH[b.kind] else b
    if {a.kind, b.kind} == {Kind.DATE, Kind.TIMESTAMP}:
        return TIMESTAMP
    if a.element and b.element:
        element = common_type(a.element, b.element)
        return DataType(Kind.ARRAY, element) if element else None
    return None


@dataclass(frozen=True, slots=True)
class Field:
    """A named, typed column."""

    name: str
    type: DataType

    def __str__(self) -> str:
        return f"{self.name} {self.type}"


@dataclass(frozen=True, slots=True)
class Schema:
    """An ordered list of fields with distinct names (case matters)."""

    fields: tuple[Field, ...]

    def __post_init__(self) -> None:
        seen: set[str] = set()
        for field in self.fields:
            if field.name in seen:
                raise InputError(f"column {field.name!r} appears twice; give one of them another name with AS")
            seen.add(field.name)

    @staticmethod
    def of(**columns: str) -> Schema:
        """A schema from names and type texts: `Schema.of(id="bigint", speed="double")`."""
        return Schema(tuple(Field(name, DataType.parse(text)) for name, text in columns.items()))

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(f.name for f in self.fields)

    @property
    def types(self) -> tuple[DataType, ...]:
        return tuple(f.type for f in self.fields)

    def type_of(self, name: str) -> DataType:
        for field in self.fields:
            if field.name == name:
                return field.type
        raise unknown("column", name, self.names)

    def index_of(self, name: str) -> int:
        for index, field in enumerate(self.fields):
            if field.name == name:
                return index
        raise unknown("column", name, self.names)

    def __contains__(self, name: object) -> bool:
        return any(f.name == name for f in self.fields)

    def __iter__(self) -> Iterator[Field]:
        return iter(self.fields)

    def __len__(self) -> int:
        return len(self.fields)

    def __str__(self) -> str:
        return ", ".join(map(str, self.fields))


def beside(left: Schema, right: Schema) -> Schema:
    """Both schemas side by side; a name that is taken gets the next free number: `speed`, `speed_2`.

    >>> str(beside(Schema.of(id="int"), Schema.of(id="int", v="double")))
    'id int, id_2 int, v double'
    """
    return Schema(
        (*left.fields, *(Field(n, f.type) for n, f in zip(fresh(right.names, left.names), right, strict=True)))
    )


def fresh(names: Iterable[str], taken: Iterable[str]) -> tuple[str, ...]:
    """Names that collide neither with `taken` nor with each other, made unique by a number."""
    used, result = set(taken), []
    for name in names:
        candidate, number = name, 2
        while candidate in used:
            candidate, number = f"{name}_{number}", number + 1
        used.add(candidate)
        result.append(candidate)
    return tuple(result)
