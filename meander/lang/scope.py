"""Scopes: which names a clause may use for the columns of its input, and which column each one means."""

from __future__ import annotations

from dataclasses import dataclass

from meander.model.errors import InputError, unknown
from meander.model.expressions.tree import Column
from meander.model.schema import Schema
from meander.model.schema import beside as schema_beside


@dataclass(frozen=True, slots=True)
class Visible:
    """A column as people call it (`a.speed`) and its name in the schema (`speed_2`)."""

    alias: str | None
    column: str
    name: str

    @property
    def written(self) -> str:
        return f"{self.alias}.{self.column}" if self.alias else self.column


@dataclass(frozen=True, slots=True)
class Scope:
    """The columns of one input, in order."""

    schema: Schema
    columns: tuple[Visible, ...]

    @staticmethod
    def of(schema: Schema, alias: str | None = None) -> Scope:
        return Scope(schema, tuple(Visible(alias, name, name) for name in schema.names))

    @property
    def aliases(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(c.alias for c in self.columns if c.alias))

    @property
    def only_alias(self) -> str | None:
        """The alias that all columns share."""
        aliases = {c.alias for c in self.columns}
        return next(iter(aliases)) if len(aliases) == 1 else None

    def beside(self, other: Scope) -> Scope:
        """Two inputs together; columns of the right-hand side may have got a number in the schema."""
        for alias in other.aliases:
            if alias in self.aliases:
                raise InputError(f"two inputs are called {alias!r}; give one of them another name with AS")
        schema = schema_beside(self.schema, other.schema)
        numbered = dict(zip(other.schema.names, schema.names[len(self.schema) :], strict=True))
        right = tuple(Visible(c.alias, c.column, numbered[c.name]) for c in other.columns)
        return Scope(schema, self.columns + right)

    def resolve(self, alias: str | None, column: str) -> Column:
        """The column that is meant, or an error that names the alternatives.

        >>> both = Scope.of(Schema.of(id="int"), "a").beside(Scope.of(Schema.of(id="int"), "b"))
        >>> both.resolve("b", "id").name
        'id_2'
        """
        if alias is not None and alias not in self.aliases:
            raise unknown("alias", alias, self.aliases, "aliases")
        found = [c for c in self.columns if c.column == column and alias in (None, c.alias)]
        if not found and alias is None:
            found = [c for c in self.columns if c.name == column]
        if not found:
            called = {c.written if alias is None and self._clashes(c.column) else c.column for c in self._of(alias)}
            raise unknown("column", column if alias is None else f"{alias}.{column}", called)
        if len(found) > 1:
            choices = " or ".join(c.written for c in found)
            if any(c.alias is None for c in found):
                choices = "an alias in front of it, after naming the inputs with AS"
            raise InputError(f"column {column!r} is ambiguous; write {choices}")
        return Column(found[0].name, self.schema.type_of(found[0].name))

    def star(self, alias: str | None = None) -> tuple[Visible, ...]:
        """The columns that `*` or `alias.*` stands for."""
        if alias is not None and alias not in self.aliases:
            raise unknown("alias", alias, self.aliases, "aliases")
        return self._of(alias)

    def __contains__(self, column: object) -> bool:
        return any(column in (c.column, c.name) for c in self.columns)

    def _of(self, alias: str | None) -> tuple[Visible, ...]:
        return tuple(c for c in self.columns if alias in (None, c.alias))

    def _clashes(self, column: str) -> bool:
        return sum(c.column == column for c in self.columns) > 1
