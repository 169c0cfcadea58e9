"""The sources of this project, parsed once for all tests that look at them: facts are kept, trees are not."""

from __future__ import annotations

import ast
import functools
import gc
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
FUNCTION = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class ClassFacts:
    """A class: its length, and its public methods; a property and its setter are one."""

    name: str
    lines: int
    methods: frozenset[str]


@dataclass(frozen=True)
class SourceFacts:
    """One module."""

    path: str
    """From the root of the project."""
    classes: tuple[ClassFacts, ...]
    functions: tuple[str, ...]
    """Methods included."""
    imports: tuple[tuple[str, tuple[str, ...]], ...]
    """Modules with the names that are taken from them, none for the module itself; wherever in it."""
    docstrings: tuple[tuple[int, str], ...]
    """Lines and texts of all texts that stand by themselves: those of attributes too."""


def facts_of(path: str, text: str) -> SourceFacts:
    classes: list[ClassFacts] = []
    functions: list[str] = []
    imports: list[tuple[str, tuple[str, ...]]] = []
    texts: list[tuple[int, str]] = []
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.ClassDef():
                public = {each.name for each in node.body if isinstance(each, FUNCTION) and each.name[0] != "_"}
                lines = (node.end_lineno or 0) - node.lineno + 1
                classes.append(ClassFacts(node.name, lines, frozenset(public)))
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                functions.append(node.name)
            case ast.Import():
                imports += [(each.name, ()) for each in node.names]
            case ast.ImportFrom(module=str(module)):
                imports.append((module, tuple(each.name for each in node.names)))
            case ast.Expr(value=ast.Constant(value=str(said))):
                texts.append((node.lineno, said))
    return SourceFacts(path, tuple(classes), tuple(functions), tuple(imports), tuple(texts))


@functools.cache
def sources(folder: str) -> tuple[SourceFacts, ...]:
    """The facts of all modules below a folder of the project."""
    return tuple(_parsed(folder))


def _parsed(folder: str) -> Iterator[SourceFacts]:
    gc.disable()  # trees are large and live briefly: looking through all else for garbage takes longer than parsing
    try:
        for path in sorted((ROOT / folder).rglob("*.py")):
            yield facts_of(path.relative_to(ROOT).as_posix(), path.read_text())
    finally:
        gc.enable()
