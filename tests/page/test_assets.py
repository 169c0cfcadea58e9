"""What is committed of the page: built from these very sources, whole, licensed, and safe under a strict policy."""

import hashlib
import json
import re
from pathlib import Path

from hatchling.builders.wheel import WheelBuilder

import meander.api

PAGE = Path(meander.api.__file__).parent / "page"
ROOT = Path(__file__).parents[2]
INPUTS = ("build.mjs", "package.json", "package-lock.json", "tsconfig.json")
REMEDY = "run scripts/page.sh and commit dist/"


def _hashes(files: list[Path]) -> dict[str, str]:
    return {f.relative_to(PAGE).as_posix(): hashlib.sha256(f.read_bytes()).hexdigest() for f in sorted(files)}


def _files(folder: str) -> list[Path]:
    return [f for f in (PAGE / folder).rglob("*") if f.is_file() and f.name != "manifest.json"]


def test_built_files_belong_to_the_sources() -> None:
    manifest = json.loads((PAGE / "dist" / "manifest.json").read_text())
    sources = _hashes([*_files("src"), *(PAGE / name for name in INPUTS)])
    assert manifest["sources"] == sources, f"the page's sources have changed since it was built; {REMEDY}"
    assert manifest["built"] == _hashes(_files("dist")), f"built files were changed by hand; {REMEDY}"


def test_a_strict_policy_can_hold() -> None:
    html = (PAGE / "dist" / "index.html").read_text()
    assert not re.search(r"<script(?![^>]*\bsrc=)", html), "inline script"
    assert not re.search(r"<style|\sstyle=|\son\w+=", html), "inline style or handler"
    for link in re.findall(r'(?:src|href)="([^"]+)"', html):
        assert (PAGE / "dist" / link).is_file(), f"{link} is not part of the page"
    for sheet in (PAGE / "dist" / "assets").glob("*.css"):
        assert not re.search(r"url\((?!\"?\./)", sheet.read_text()), "a style sheet asks for something elsewhere"


def test_every_package_has_its_licence() -> None:
    wanted = json.loads((PAGE / "package.json").read_text())["dependencies"]
    licences = (PAGE / "dist" / "LICENSES.txt").read_text()
    for name, version in wanted.items():
        assert f"{name} {version} (" in licences
    assert "Permission is hereby granted" in licences
    assert "SIL Open Font License" in licences or "SIL OPEN FONT LICENSE" in licences


def test_the_wheel_has_the_page_and_not_its_sources() -> None:
    inside = {f.distribution_path for f in WheelBuilder(str(ROOT)).recurse_included_files()}
    assert "meander/api/page/dist/index.html" in inside
    assert any(re.fullmatch(r"meander/api/page/dist/assets/app-\w+\.js", p) for p in inside)
    assert not any(p.startswith("meander/api/page/") and "/dist/" not in p for p in inside)
