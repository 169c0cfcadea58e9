"""Secrets in options: their place travels, they do not."""

from __future__ import annotations

from pathlib import Path

import pytest

from meander.model.errors import InputError
from meander.model.ids import ChannelId
from meander.model.streams import SinkTarget
from meander.run.connectors import sink_for
from meander.run.connectors.base import SinkBinding, Surroundings
from meander.run.connectors.secrets import Secret, is_secret, revealed


def binding(**options: str) -> SinkBinding:
    return SinkBinding("q", SinkTarget("db", "cloud", options), ChannelId(1))


def test_a_secret_is_looked_up_where_it_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "password").write_text("hunter2\n")
    monkeypatch.setenv("DB_USER", "meander")
    options = {"user": "env:DB_USER", "password": f"secret:{tmp_path / 'password'}", "dbtable": "alerts"}
    assert revealed(options, "sink 'db'") == {"user": "meander", "password": "hunter2", "dbtable": "alerts"}
    assert "hunter2" not in repr(Secret.at(options["password"], "option"))


@pytest.mark.parametrize("place", ["env:NOT_THERE", "secret:/nowhere/at/all"])
def test_a_secret_that_is_not_there_says_where_it_was_looked_for(place: str) -> None:
    with pytest.raises(InputError, match=r"option 'password'.*(NOT_THERE|nowhere)"):
        revealed({"password": place}, "sink 'db'")


@pytest.mark.parametrize(
    ("connector", "name"),
    [("spark", "password"), ("spark", "kafka.sasl.jaas.config"), ("spark", "option.password"), ("http", "token")],
)
def test_a_secret_that_is_written_out_is_refused_and_not_repeated(tmp_path: Path, connector: str, name: str) -> None:
    options = {"connector": connector, "format": "jdbc", "url": "http://127.0.0.1:1/", name: "hunter2"}
    if connector == "http":
        del options["format"]
    with pytest.raises(InputError, match="is a secret written out; write env:NAME") as told:
        sink_for(binding(**options), Surroundings(tmp_path, tmp_path))
    assert "hunter2" not in str(told.value)
    assert sink_for(binding(**{**options, name: "env:PASSWORD"}), Surroundings(tmp_path, tmp_path)) is not None


def test_a_token_goes_to_no_address_in_clear_text(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="begins with https://"):
        sink_for(binding(connector="http", url="http://db.example/", token="env:T"), Surroundings(tmp_path, tmp_path))


def test_names_of_secrets_are_told_from_others() -> None:
    secrets = ("password", "sslpassword", "api_key", "accessKey", "fs.s3a.secret.key")
    assert [name for name in secrets if not is_secret(name)] == []
    plain = ("path", "dbtable", "url", "keyspace", "format", "kafka.bootstrap.servers")
    assert [name for name in plain if is_secret(name)] == []
