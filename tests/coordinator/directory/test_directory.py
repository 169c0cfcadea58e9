"""The directory of a coordinator: made once, safe from others' eyes, used by one at a time."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from meander.coordinator.directory.creation import create
from meander.coordinator.directory.directory import CoordinatorDirectory, announce, announced, held, withdraw
from meander.coordinator.directory.settings import read_settings
from meander.coordinator.security.tokens import Tokens, write
from meander.model.errors import InputError
from tests.coordinator.world import write_world


def test_a_directory_is_made_with_tokens_that_only_its_owner_can_read(tmp_path: Path) -> None:
    home = create(tmp_path / "home", write_world(tmp_path))
    assert stat.S_IMODE(home.tokens.stat().st_mode) == 0o600
    assert stat.S_IMODE(home.directory.stat().st_mode) == 0o700
    assert Tokens.load(home.tokens).listed() == []
    assert read_settings(home) == {}
    with pytest.raises(InputError, match="already"):
        create(tmp_path / "home", tmp_path / "topology.yaml")


def test_a_bad_topology_makes_no_directory(tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text("nodes: [{name: a, kind: fog}]")
    with pytest.raises(InputError, match="fog"):
        create(tmp_path / "home", tmp_path / "bad.yaml")
    assert not (tmp_path / "home").exists()


def test_tokens_that_others_can_read_or_that_are_no_tokens_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "tokens.json"
    with pytest.raises(InputError, match="meander init"):
        Tokens.load(path)
    write(path)
    path.chmod(0o640)
    with pytest.raises(InputError, match="chmod 600"):
        Tokens.load(path)
    path.chmod(0o600)
    for text, reason in (
        ("{}", "cannot be read"),
        (json.dumps({"reader": "a", "operator": "b"}), "at least 16"),
        (json.dumps({"format": 3, "tokens": []}), "newer version"),
    ):
        path.write_text(text)
        with pytest.raises(InputError, match=reason):
            Tokens.load(path)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("port = 'x'", "port must be a int"),
        ("prot = 1", "no setting 'prot'"),
        ("port =", "cannot be read"),
        ("amenders = 0", r"meander.toml.*amenders must be at least 1, not 0; leave it out"),
        ("amenders = 'all'", "amenders must be a int"),
    ],
)
def test_settings_that_cannot_be_meant_are_refused(tmp_path: Path, text: str, reason: str) -> None:
    home = create(tmp_path / "home", write_world(tmp_path))
    home.settings.write_text(text)
    with pytest.raises(InputError, match=reason):
        read_settings(home)


def test_one_coordinator_at_a_time(tmp_path: Path) -> None:
    home = create(tmp_path / "home", write_world(tmp_path))
    with held(home):
        announce(home, "http://127.0.0.1:1", "secret")
        assert stat.S_IMODE(home.service.stat().st_mode) == 0o600
        with (
            pytest.raises(InputError, match=r"runs here already, process \d+ at http"),
            held(CoordinatorDirectory(home.directory)),
        ):
            pass
    with held(home):
        withdraw(home)
    assert announced(home) is None
