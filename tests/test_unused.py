"""What is built is reachable: no function or class of the product is there for its tests alone.

The references between definitions are read from the source. What runs when a module is imported (tables, decorated
functions such as commands and routes) is used; so is what something used refers to, there or in the laboratory.
"""

from __future__ import annotations

import ast
import functools
import re
import sys
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parent.parent
Name = tuple[str, str]
"""A module and a name in it; no name for what runs when the module is imported."""
DEFINITION = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef

ALLOWED: dict[Name, str] = {
    ("meander.place.costspace.weighted", "beside"): "metrics beside latency: for Nova as a mechanism",
    ("meander.place.costspace.weighted", "per_node"): "metrics beside latency: for Nova as a mechanism",
}
"""What nothing refers to by its name, and why it is there."""

ALLOWED_MEMBERS: dict[str, str] = {
    "MembershipClient.wait_joined": "tests join without a site",
    "SparkInternals.memory_used": "that nothing is kept is asked of Spark",
    "IngestMetrics.paused_ticks": "that sources waited",
    "StoreStats.refused_writes": "that a disk was full",
    "StoreStats.channel_bytes": "what pressure is made of",
    "StoreStats.snapshots": "that segments rolled",
    "CascadedQuery.bookings": "that what nodes have left adds up",
    "TreeQuery.bookings": "that what nodes have left adds up",
}
"""Methods and fields that only tests read, and why they are there."""
CALLED_BY_OTHERS = re.compile(
    r"(BaseModel|BaseHTTPRequestHandler|ThreadingHTTPServer|ServerMiddlewareFactory|DataSource|DataSourceStreamReader|"
    r"SparkParser)$"
)
"""Classes of libraries that call methods of ours, or read fields, by their names."""


@dataclass
class Module:
    """One file: what its names stand for, what it defines, and what each definition refers to."""

    name: str
    stands_for: dict[str, Name] = field(default_factory=dict)
    """What was imported, by the name it has here; a module has no name in it."""
    definitions: dict[str, int] = field(default_factory=dict)
    """With their lines."""
    refers: dict[str, set[str]] = field(default_factory=dict)
    """Names, and names with dots."""


@functools.cache
def read(*folders: str) -> dict[str, Module]:
    found: dict[str, Module] = {}
    for path in sorted(p for folder in folders for p in (ROOT / folder).rglob("*.py")):
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        found[name] = parsed(name, path.read_text())
    return found


def parsed(name: str, text: str) -> Module:
    module, tree = Module(name), ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            module.stands_for |= {a.asname or a.name: (node.module, a.name) for a in node.names}
        elif isinstance(node, ast.Import):
            module.stands_for |= {a.asname or a.name: (a.name, "") for a in node.names}
    for statement in tree.body:
        owner = ""
        if isinstance(statement, DEFINITION):
            module.definitions[statement.name] = statement.lineno
            owner = "" if statement.decorator_list and not isinstance(statement, ast.ClassDef) else statement.name
            if not owner:  # a command, a route
                module.refers.setdefault("", set()).add(statement.name)
        expressions = (n for n in ast.walk(statement) if isinstance(n, ast.Name | ast.Attribute))
        module.refers.setdefault(owner, set()).update(filter(None, map(dotted, expressions)))
        if not isinstance(statement, ast.FunctionDef):
            module.refers[owner].update(listed(statement))
    return module


def listed(statement: ast.stmt) -> Iterator[str]:
    """Names in `__all__`, which a package may load by name."""
    if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == "__all__":
        yield from ast.literal_eval(statement.value)


def dotted(found: ast.expr) -> str | None:
    """The text of a name, or of a name with dots."""
    match found:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=value, attr=name):
            before = dotted(value)
            return None if before is None else f"{before}.{name}"
    return None


def meant(modules: dict[str, Module], module: Module, text: str) -> Name | None:
    """The definition that a name or `module.name` stands for."""
    before, _, name = text.rpartition(".")
    if not before:
        if name in module.definitions:
            return module.name, name
        return followed(modules, module.stands_for[name]) if name in module.stands_for else None
    home, inner = module.stands_for.get(before, ("", ""))
    whole = f"{home}.{inner}".rstrip(".")
    return followed(modules, (whole, name)) if whole in modules else None


def followed(modules: dict[str, Module], name: Name) -> Name | None:
    """Where something is defined that a package passes on."""
    for _ in range(5):
        module = modules.get(name[0])
        if module is None:
            return None
        if name[1] in module.definitions:
            return name
        if name[1] not in module.stands_for:
            return None
        name = module.stands_for[name[1]]
    return None


def unused(modules: dict[str, Module], allowed: Iterable[Name] = ()) -> list[str]:
    waiting: list[Name] = [*((name, "") for name in modules), *allowed]
    used = set(waiting)
    while waiting:
        home, name = waiting.pop()
        module = modules[home]
        for text in module.refers.get(name, ()):
            other = meant(modules, module, text)
            if other is not None and other not in used:
                used.add(other)
                waiting.append(other)
    return [
        f"{module.name.replace('.', '/')}.py:{line}: {name}"
        for module in modules.values()
        for name, line in module.definitions.items()
        if not name.startswith("__")
        if (module.name, name) not in used and module.name.startswith("meander")
    ]


def test_everything_is_used() -> None:
    modules = read("meander", "lab")
    assert len(modules) > 100
    found = unused(modules, ALLOWED)
    assert not found, "nothing uses these; delete them with their tests:\n" + "\n".join(found)


def test_the_list_of_exceptions_names_what_is_there_and_unused() -> None:
    modules = read("meander", "lab")
    found = set(unused(modules))
    for home, name in ALLOWED:
        assert f"{home.replace('.', '/')}.py:{modules[home].definitions[name]}: {name}" in found


def test_what_is_used_by_what_is_unused_is_unused() -> None:
    texts = {
        "meander.a": "from meander.b import used, Class\n@command\ndef go():\n    used()\ndef alone():\n    helper()\n",
        "meander.b": "def used():\n    inner()\ndef inner(): ...\nclass Class:\n    def m(self): return used\n",
        "lab.c": "from meander import b\nb.measured()\n",
    }
    texts["meander.a"] += "def helper(): ...\n"
    texts["meander.b"] += "def measured(): ...\n"
    texts["meander"] = ""
    modules = {name: parsed(name, text) for name, text in texts.items()}
    assert unused(modules) == ["meander/a.py:5: alone", "meander/a.py:7: helper", "meander/b.py:4: Class"]


def members(node: ast.ClassDef) -> Iterator[str]:
    """Methods and fields of a class."""
    for each in node.body:
        match each:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield name
            case ast.AnnAssign(target=ast.Name(id=name)):
                yield name


def unread(folders: Iterable[str], product: str) -> list[str]:
    """Members of the product's classes whose names nothing reads, in code or in a text.

    By name alone: whatever has the same name as something that is read counts as read.
    """
    read_names: set[str] = set()
    found: dict[str, str] = {}
    for path in sorted(p for folder in folders for p in (ROOT / folder).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            match node:
                case ast.Attribute(attr=name) | ast.Name(id=name, ctx=ast.Load()):
                    read_names.add(name)
                case ast.Constant(value=str(text)) if " " not in text:  # a key; all else is prose
                    read_names.update(re.findall(r"\w+", text))
                case ast.ClassDef() if path.is_relative_to(ROOT / product):
                    if not any(CALLED_BY_OTHERS.search(ast.unparse(base)) for base in node.bases):
                        found |= {f"{node.name}.{name}": name for name in members(node)}
    return sorted(f for f, name in found.items() if name not in read_names and not name.startswith("__"))


def test_methods_and_fields_are_read() -> None:
    found = unread(("meander", "lab"), "meander")
    new = [name for name in found if name not in ALLOWED_MEMBERS]
    assert not new, "nothing but tests reads these; delete them, or show them to somebody:\n" + "\n".join(new)
    assert sorted(ALLOWED_MEMBERS) == found, "exceptions that are none any more; delete them"


IMPORTED_AS = {"prometheus-client": "prometheus_client", "pyyaml": "yaml"}


def test_what_the_product_imports_is_declared_and_imported() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    names = [re.split(r"[=<>~!;\[ ]", line)[0] for line in project["dependencies"]]
    declared = {IMPORTED_AS.get(name, name) for name in names}
    optional = {"opentelemetry"}
    homes = {home.split(".")[0] for m in read("meander").values() for home, _ in m.stands_for.values()}
    assert homes - sys.stdlib_module_names - {"meander"} - optional == declared
