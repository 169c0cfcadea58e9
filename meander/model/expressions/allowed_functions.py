"""The user functions that a process may import: `APPLY` names a module, and importing one runs it.

A pattern is `module:function`, `module` for all its functions, `package.*` for all modules of a package, or `*`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase

from meander.model.errors import InputError


@dataclass(frozen=True, slots=True)
class AllowedFunctions:
    """Patterns; None allows everything, as where queries are those of the process's own user."""

    patterns: tuple[str, ...] | None = None

    def check(self, function: str) -> None:
        """Raises for a function that may not be imported here.

        >>> AllowedFunctions(("fleet.rules",)).check("fleet.rules:enrich")
        """
        if self.patterns is None or any(_fits(function, pattern) for pattern in self.patterns):
            return
        now = f"; allowed are {', '.join(self.patterns)}" if self.patterns else ""
        raise InputError(
            f"user function {function!r} is not allowed here{now}. Let whoever runs this coordinator or site add it: "
            f'functions = ["{function.partition(":")[0]}"] in meander.toml, or --functions, and start it again'
        )


ANY, NONE = AllowedFunctions(), AllowedFunctions(())


def allowed(patterns: Iterable[str]) -> AllowedFunctions:
    """Those of a setting, checked for their form."""
    found = tuple(patterns)
    for pattern in found:
        module, _, name = pattern.partition(":")
        parts = [*module.split("."), *([name] if ":" in pattern else [])]
        if not all(part == "*" or part.isidentifier() for part in parts):
            raise InputError(f"functions: {pattern!r} names no function; write module:function, module, package.* or *")
    return AllowedFunctions(found)


def _fits(function: str, pattern: str) -> bool:
    if ":" in pattern or pattern == "*":
        return fnmatchcase(function, pattern)
    return fnmatchcase(function.partition(":")[0], pattern)
