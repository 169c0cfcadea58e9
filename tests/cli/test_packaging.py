"""The deployment files start commands that exist, with options that they have, and point at files that are there."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from meander.cli.main import app
from meander.lang.topology.reader import load

ROOT = Path(__file__).parents[2]
PACKAGING = ROOT / "packaging"
COMPOSE: dict[str, Any] = yaml.safe_load((PACKAGING / "compose.yaml").read_text())
KUBERNETES: list[dict[str, Any]] = list(yaml.safe_load_all((PACKAGING / "kubernetes" / "meander.yaml").read_text()))


def started() -> dict[str, list[str]]:
    """The arguments of every command that is started."""
    found = {f"compose {name}": service["command"] for name, service in COMPOSE["services"].items()}
    for each in KUBERNETES:
        if each["kind"] == "StatefulSet":
            (container,) = each["spec"]["template"]["spec"]["containers"]
            found[f"kubernetes {each['metadata']['name']}"] = container["args"]
    for unit in sorted((PACKAGING / "systemd").iterdir()):
        text = unit.read_text().replace("\\\n", " ")
        (line,) = re.findall(r"(?m)^ExecStart=(.*)$", text)
        found[unit.name] = shlex.split(line)[1:]
    return found


BY_NAME = re.compile(
    r"""(?<![\w./-])meander\[ | \b(?:pipx?|uv)3?\b .* \binstall\b [^`\n]* [\s'"]meander(?![\w/.-])""", re.X
)
"""The name belongs to somebody else's library on the package index."""


def told() -> dict[Path, str]:
    """All that people read or run, but for this test."""
    folders = ("docs", "examples", "meander", "packaging", "scripts", "tests")
    found = [
        p for f in folders for p in (ROOT / f).rglob("*") if "node_modules" not in p.parts and "dist" not in p.parts
    ]
    kinds = (".md", ".py", ".sh", ".toml", ".yaml", ".yml", ".service", ".ipynb", ".ts", ".in", "")
    found += [ROOT / name for name in ("README.md", "Makefile", "pyproject.toml")]
    return {p: p.read_text(errors="ignore") for p in found if p.is_file() and p.suffix in kinds and p != Path(__file__)}


def test_nobody_is_told_to_install_somebody_elses_library() -> None:
    """`pip install 'meander[otel]'` gets another project; a checkout is installed by its path."""
    assert all(
        BY_NAME.search(bad)
        for bad in ("pip install 'meander[otel]'", "pip install meander", "uv pip install -U meander")
    )
    assert not any(BY_NAME.search(good) for good in ("pip install '.[otel]'", "/opt/meander/bin/pip install ."))
    assert len(told()) > 100
    wrong = {f"{p.relative_to(ROOT)}: {m.group()}" for p, text in told().items() if (m := BY_NAME.search(text))}
    assert wrong == set()


@pytest.mark.parametrize("name", list(started()))
def test_what_is_started_is_a_command_with_options_that_it_has(name: str) -> None:
    arguments = started()[name]
    root: Any = typer.main.get_command(app)
    command = root.load(arguments[0])
    known = {option for parameter in command.params for option in parameter.opts}
    given = [a.split("=")[0] for a in arguments[1:] if a.startswith("--")]
    assert given
    assert set(given) <= known
    assert len(given) == len(set(given))


def test_the_sites_of_compose_have_nodes_that_its_topology_has() -> None:
    services = COMPOSE["services"]
    source = next(v.split(":")[0] for v in services["coordinator"]["volumes"] if v.endswith("topology.yaml:ro"))
    topology = load((PACKAGING / source).resolve()).topology
    seen: set[str] = set()
    for name, service in services.items():
        values = dict(a.removeprefix("--").split("=", 1) for a in service["command"] if "=" in a)
        if name != "coordinator":
            nodes = values["nodes"].split(",")
            assert all(node in topology for node in nodes)
            assert not seen & set(nodes)
            seen |= set(nodes)
            assert values["name"] == name
            assert values["join"] == "https://coordinator:8420"
        mounted = {v.split(":")[0] for v in service["volumes"]} & set(COMPOSE["volumes"])
        assert mounted == {name}


def test_every_file_that_the_image_copies_is_there() -> None:
    copied = re.findall(r"(?m)^COPY (.*) \S+$", (PACKAGING / "Containerfile").read_text())
    names = [name for line in copied for name in line.split()]
    assert len(names) > 4
    assert all((ROOT / name).exists() for name in names)


def test_services_of_kubernetes_find_their_processes() -> None:
    labels = [e["spec"]["template"]["metadata"]["labels"] for e in KUBERNETES if e["kind"] == "StatefulSet"]
    services = [e["spec"]["selector"] for e in KUBERNETES if e["kind"] == "Service"]
    assert services == labels
    assert all(e["spec"]["replicas"] == 1 for e in KUBERNETES if e["kind"] == "StatefulSet")


def test_images_are_pinned_and_have_nothing_that_is_only_for_building() -> None:
    text = (PACKAGING / "Containerfile").read_text()
    assert re.search(r"(?m)^ARG BASE=\S+@sha256:[0-9a-f]{64}$", text)
    stages = re.findall(r"(?m)^FROM (.*)$", text)
    assert stages == ["${BASE} AS build", "${BASE}"]
    final = text.rpartition("FROM ${BASE}")[2]
    assert "--no-index" in final
    assert "requirements-build.lock" not in final
