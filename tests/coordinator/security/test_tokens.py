"""Tokens of users: shown once, kept as hashes, good until they are revoked."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from meander.coordinator.security.authenticator import Authenticator
from meander.coordinator.security.tokens import Identity, Role, Tokens, write
from meander.model.errors import InputError


def tokens_in(directory: Path) -> Tokens:
    write(directory / "tokens.json")
    return Tokens.load(directory / "tokens.json")


def test_a_token_is_known_until_it_is_revoked_and_the_file_never_has_it(tmp_path: Path) -> None:
    tokens = tokens_in(tmp_path)
    made = tokens.make("anna", Role.OPERATOR)
    assert tokens.identity_of(made) == Identity("anna", Role.OPERATOR)
    assert Tokens.load(tmp_path / "tokens.json").identity_of(made) == Identity("anna", Role.OPERATOR)
    assert made not in (tmp_path / "tokens.json").read_text()
    assert stat.S_IMODE((tmp_path / "tokens.json").stat().st_mode) == 0o600
    assert "digest" not in tokens.listed()[0].as_json()
    for wrong in ("", made[:-1], made + "x", tokens.listed()[0].digest, "\u00e9"):
        assert tokens.identity_of(wrong) is None
    tokens.revoke("anna")
    assert tokens.identity_of(made) is None
    assert Tokens.load(tmp_path / "tokens.json").listed() == []


def test_a_name_has_one_token_and_names_of_others_are_not_given(tmp_path: Path) -> None:
    tokens = tokens_in(tmp_path)
    first = tokens.make("anna", Role.READER)
    with pytest.raises(InputError, match="revoke it first"):
        tokens.make("anna", Role.ADMIN)
    second = tokens.make("anna", Role.ADMIN, renew=True)
    assert tokens.identity_of(first) is None
    assert tokens.identity_of(second) == Identity("anna", Role.ADMIN)
    for name in ("local", "coordinator", "anonymous", "", "a\n"):
        with pytest.raises(InputError):
            tokens.make(name, Role.READER)
    with pytest.raises(InputError, match="no token 'ana'"):
        tokens.revoke("ana")


def test_the_two_tokens_of_the_first_format_go_on_with_their_rights(tmp_path: Path) -> None:
    path = tmp_path / "tokens.json"
    path.write_text(json.dumps({"reader": "r" * 20, "operator": "o" * 20}))
    path.chmod(0o600)
    tokens = Tokens.load(path)
    assert tokens.identity_of("r" * 20) == Identity("reader", Role.READER)
    assert tokens.identity_of("o" * 20) == Identity("operator", Role.ADMIN)
    assert "o" * 20 not in path.read_text()
    assert Tokens.load(path).identity_of("o" * 20) == Identity("operator", Role.ADMIN)


def test_each_role_may_do_what_those_before_it_may() -> None:
    allowed = {(a.value, b.value) for a in Role for b in Role if a.allows(b)}
    assert allowed == {
        ("device", "device"),
        ("operator", "device"),
        ("admin", "device"),
        ("reader", "reader"),
        ("operator", "reader"),
        ("operator", "operator"),
        ("admin", "reader"),
        ("admin", "operator"),
        ("admin", "admin"),
    }


def test_revoking_a_token_ends_the_sessions_that_it_opened(tmp_path: Path) -> None:
    authenticator = Authenticator(tokens_in(tmp_path))
    anna = authenticator.identity_of(authenticator.tokens.make("anna", Role.READER))
    assert anna is not None
    used, unused = (authenticator.link(anna).removeprefix("#code=") for _ in range(2))
    session, _ = authenticator.log_in(used)
    assert authenticator.identity_of(session) == anna
    authenticator.revoke("anna")
    assert authenticator.identity_of(session) is None
    with pytest.raises(InputError, match="meander token link"):
        authenticator.log_in(unused)
