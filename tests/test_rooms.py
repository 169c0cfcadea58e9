"""The bounds of rooms: how large a class is, how many of our own modules a module imports, how many lie side by side.

A bound that is passed says that something hidden wants a name and a module of its own. Where keeping it would make the
code worse, the exception is listed here with its reason.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from tests.sources import SourceFacts, facts_of, sources

MOST_LINES, MOST_METHODS, MOST_IMPORTS, MOST_MODULES, MOST_ENTRIES = 300, 20, 18, 20, 30
"""Of a class; of a class; of a module; of a package; of a package that is a table."""

TABLES: dict[str, str] = {
    "meander/cli": "a file a group of commands",
    "meander/run/connectors": "a file a connector",
}
"""Packages with one file for each entry."""

LARGE_CLASSES: dict[str, str] = {}
MANY_METHODS: dict[str, str] = {}
MANY_IMPORTS: dict[str, str] = {
    "meander/coordinator/loop/loop.py": "joins placement, deployment and what runs: each side's types meet here",
    "meander/run/connectors/__init__.py": "the table of connectors: a module an entry",
    "meander/run/host.py": "makes each part of a host: halves of it would hide how they fit",
}


def imported(facts: SourceFacts, ours: set[str]) -> set[str]:
    """Our own modules that a module imports, wherever in it."""
    found = set()
    for module, names in facts.imports:
        if module in ours:
            inner = {f"{module}.{name}" for name in names} & ours
            found |= inner or {module}
    return found


def module_name(path: str) -> str:
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def over(found: Mapping[str, int], bound: int) -> dict[str, int]:
    return {name: n for name, n in found.items() if n > bound}


def class_lines() -> dict[str, int]:
    return {f"{each.path}: {c.name}": c.lines for each in sources("meander") for c in each.classes}


def class_methods() -> dict[str, int]:
    return {f"{each.path}: {c.name}": len(c.methods) for each in sources("meander") for c in each.classes}


def module_imports() -> dict[str, int]:
    ours = {module_name(each.path) for each in sources("meander")}
    return {each.path: len(imported(each, ours)) for each in sources("meander")}


def package_sizes() -> Counter[str]:
    paths = [Path(each.path) for each in sources("meander")]
    return Counter(path.parent.as_posix() for path in paths if path.name != "__init__.py")


def check(found: dict[str, int], excepted: Mapping[str, str], remedy: str) -> None:
    new = {name: n for name, n in found.items() if name not in excepted}
    assert not new, remedy + "\n" + "\n".join(f"{name}: {n}" for name, n in new.items())
    assert sorted(excepted) == sorted(found), "exceptions that are none any more; delete them"


def test_classes_are_small() -> None:
    found = over(class_lines(), MOST_LINES)
    check(found, LARGE_CLASSES, f"classes of more than {MOST_LINES} lines; find the noun that is hidden in them:")


def test_classes_have_few_public_methods() -> None:
    found = over(class_methods(), MOST_METHODS)
    check(found, MANY_METHODS, f"classes with more than {MOST_METHODS} public methods; which of them go together?")


def test_modules_import_few_of_ours() -> None:
    found = over(module_imports(), MOST_IMPORTS)
    check(
        found, MANY_IMPORTS, f"modules that import more than {MOST_IMPORTS} of ours; which step has a name of its own?"
    )


def test_rooms_have_few_modules_side_by_side() -> None:
    sizes = package_sizes()
    crowded = {name: n for name, n in sizes.items() if n > (MOST_ENTRIES if name in TABLES else MOST_MODULES)}
    assert not crowded, "rooms with too many modules side by side; which of them go together?"
    assert {name for name in TABLES if sizes[name] <= MOST_MODULES} == set(), "no longer a large table"


def test_what_counts_as_imported_and_as_public() -> None:
    text = "import meander.a\nfrom meander import b\nfrom meander.c import D\ndef f():\n    from meander.d import E\n"
    ours = {"meander", "meander.a", "meander.b", "meander.c", "meander.d"}
    assert imported(facts_of("e.py", text), ours) == ours - {"meander"}
    text = "class A:\n def a(self): ...\n async def b(self): ...\n def _c(self): ...\n x = 1\n"
    (found,) = facts_of("a.py", text).classes
    assert (set(found.methods), found.lines) == ({"a", "b"}, 5)
