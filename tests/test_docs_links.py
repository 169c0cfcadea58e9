"""Links of the documentation lead somewhere, and the files and modules that it names exist."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = sorted(
    [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *ROOT.glob("CONTRIBUTING.md"), *ROOT.glob("SECURITY.md")]
)
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)|!\[[^\]]*\]\(([^)\s]+)\)|<img[^>]* src=\"([^\"]+)\"")
FILE = re.compile(r"`((?:meander|lab|tests|scripts|examples|docs|packaging)/[\w./-]+|[a-z_]+(?:/[a-z_]+)+\.py)`")
MODULE = re.compile(r"\b(?:from|import|-m) ((?:meander|lab)(?:\.\w+)+)")

TO_BE_WRITTEN = {"adapt/monitors/jitter.py", "place/mechanisms/middle.py", "run/operators/sample.py"}
"""Files that a how-to tells its reader to add."""


def text_of(page: Path) -> str:
    return re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)


def anchors(page: Path) -> set[str]:
    """The names of headings, as GitHub makes them."""
    titles = re.findall(r"^#+ (.+)$", text_of(page), re.MULTILINE)
    plain = [re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title).lower() for title in titles]
    return {re.sub(r"[^\w\- ]", "", title).strip().replace(" ", "-") for title in plain}


def broken(page: Path) -> Iterator[str]:
    for found in LINK.finditer(text_of(page)):
        target = next(t for t in found.groups() if t)
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        other = (page.parent / path).resolve() if path else page
        if not other.exists():
            yield f"there is no {target}"
        elif anchor and other.suffix == ".md" and anchor not in anchors(other):
            yield f"{path or page.name} has no heading #{anchor}"


def missing(page: Path) -> Iterator[str]:
    for name in FILE.findall(page.read_text()):
        known = any((ROOT / room / name).exists() for room in ("", "meander", "meander/run"))
        if not known and name.removeprefix("meander/") not in TO_BE_WRITTEN:
            yield f"there is no file {name}"
    for module in MODULE.findall(page.read_text()):
        path = ROOT / module.replace(".", "/")
        if not path.with_suffix(".py").exists() and not path.is_dir():
            yield f"there is no module {module}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere_and_named_files_exist(page: Path) -> None:
    assert [*broken(page), *missing(page)] == []
