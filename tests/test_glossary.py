"""The words of names: those of public classes are in the glossary, and words that were given up do not come back."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PurePath

from tests.sources import ROOT, facts_of, sources

_EVERYDAY = """
action added address answer app append applied arrival assignment attempt away batch begin bound brought buffer by
cache call callback case cause check choice clause client code comparison compression conflict console content
control copy correction corrupt created crowd cursor curve damaged data dealer declared definition departure
description details directory disk document drop due durability edge effort ending envelope equal error exact
expected export failed failure fault field file finding forgotten format found frame free full function gathered
handler head heard histogram history hopeless http index input installation internals item java job json key label
last lets limit line linear listen literal little local lock matching memo memory message metadata meter move named
need newest no not number numbered observed offset one opening option order outcome output outside own page pairs
parquet parsed pass passed per percentile periodic phase phrase plain planner pool posted problem push quality question
queue ran random range received recipe refused registered remote remove rename repeatable repeating request response
result resumed road role round row rules scope script sealed section seen sending server setting shape shown side
sign signal single size span spec static status steady stopped stuck summary surroundings surveyed swappable switch
system tally target taste text thompson thread timetable tls token too total touched tree triggering tuple type
unknown unreachable use user verdict view visible wanted watched weather with without work world written yaml
"""
EVERYDAY = frozenset(_EVERYDAY.split())
"""Words that any program uses; what they mean here is what they mean everywhere."""

_DIALECT = """
asker bed circle comings course courses desk door journey knot nudge office outlet outlets owe parting patience porthole
rehearsal rehearse sight spreader switchboard teller telling ties twins upkeep wavefront ways wires wish wishes
"""
DIALECT = frozenset(_DIALECT.split())
"""Words that meant something in this program only; the glossary has those of the field."""

NO_SUBJECT = re.compile(r"(What|Who|Whose|Nobody|Whoever|Whatever|How it|How they)\b")
"""Beginnings of docstrings that have no noun as their subject."""
NO_ROOM = re.compile(r"(How|Which|Where|When|Why|Whether|If|Is|Are|Does|Do)\b")
"""More of them, for the first line of a module, which names what it is for."""


def words(name: str) -> list[str]:
    return [w.lower() for w in re.findall(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+", name)]


def stem(word: str) -> str:
    """The word without its ending: `placed`, `placing` and `placement` are one."""
    return re.sub(r"(?<=\w{3})(ements?|ments?|ations?|itions?|ions?|ings?|ies|ed|es|ers?|ors?|s|e|y)$", "", word)


def glossary() -> set[str]:
    rows = re.findall(r"^\| ([^|]+) \|", (ROOT / "docs" / "glossary.md").read_text(), re.MULTILINE)
    return {stem(w) for row in rows for w in re.findall(r"[a-z]+", row.lower())}


def definitions() -> Iterator[tuple[str, str, bool]]:
    """Module, name and whether it is a class: of all public classes and functions of the product, methods included."""
    for each in sources("meander"):
        yield from ((each.path, c.name, True) for c in each.classes if c.name[0] != "_")
        yield from ((each.path, name, False) for name in each.functions if name[0] != "_")


def test_the_glossary_has_the_words_of_all_public_classes() -> None:
    known = glossary() | {stem(w) for w in EVERYDAY}
    missing = [
        f"{name} ({path}): {word}"
        for path, name, is_class in definitions()
        for word in words(name)
        if is_class and stem(word) not in known
    ]
    assert not missing, "add these words to docs/glossary.md:\n" + "\n".join(missing)


def test_no_word_is_both_everyday_and_explained() -> None:
    assert sorted(w for w in EVERYDAY if stem(w) in glossary()) == []


def test_one_name_is_one_class_but_for_the_forms_of_the_api() -> None:
    forms = {"meander/api/models.py", "meander/api/site_models.py"}
    found: dict[str, list[str]] = {}
    for path, name, is_class in definitions():
        if is_class and path not in forms:
            found.setdefault(name, []).append(path)
    assert {name: paths for name, paths in found.items() if len(paths) > 1} == {}


def test_no_module_class_or_function_has_a_word_that_was_given_up() -> None:
    names = {(path, name) for path, name, _ in definitions()}
    paths = [PurePath(each.path) for each in sources("meander")]
    names |= {(str(path), path.parent.name if path.stem == "__init__" else path.stem) for path in paths}
    found = [f"{path}: {name}" for path, name in sorted(names) if DIALECT & set(words(name))]
    assert not found, "say these in the words of the field:\n" + "\n".join(found)


def test_the_subject_of_a_docstring_is_a_noun() -> None:
    found = [
        f"{each.path}:{line}: {text.splitlines()[0]}"
        for each in (*sources("meander"), *sources("lab"))
        for line, text in each.docstrings
        if NO_SUBJECT.match(text) or (line == 1 and each.path.startswith("meander") and NO_ROOM.match(text))
    ]
    assert not found, "begin with a noun, as in 'The channels a query's tuples go through.':\n" + "\n".join(found)


def test_texts_of_attributes_are_docstrings_too() -> None:
    facts = facts_of("a.py", '"""A module."""\nx = 1\n"""What it is."""\ny = "What is said"\n')
    assert [text for _, text in facts.docstrings if NO_SUBJECT.match(text)] == ["What it is."]
