"""Tokens, certificates and the audit log from the command line, without a coordinator that runs."""

from __future__ import annotations

import json
import ssl
import stat
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from meander.cli.main import app
from meander.coordinator.directory.creation import create
from meander.coordinator.membership.store import MembershipStore
from meander.coordinator.options import CoordinatorOptions
from meander.coordinator.security.tls import Tls
from meander.model.errors import InputError
from meander.run.channels.kafka.address import client_settings
from tests.coordinator.world import write_world


def said(*arguments: str) -> str:
    result = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.fixture
def home(tmp_path: Path) -> Path:
    create(tmp_path / "home", write_world(tmp_path))
    return tmp_path / "home"


def test_tokens_are_made_listed_and_revoked_before_the_coordinator_runs(home: Path) -> None:
    token = said("site", "token", "create", "gateway", "--nodes", "e0, s*", "-d", str(home)).strip()
    book = MembershipStore(home / "ledger.db")
    given = book.pass_of(token)
    assert given is not None
    assert (given.site, given.nodes) == ("gateway", ("e0", "s*"))
    (listed,) = json.loads(said("site", "token", "list", "-d", str(home), "--json"))
    assert (listed["site"], listed["nodes"]) == ("gateway", ["e0", "s*"])
    assert "token" not in listed
    assert "gateway" in said("site", "token", "list", "-d", str(home))
    made = json.loads(said("site", "token", "create", "gateway", "--nodes", "e1", "--renew", "-d", str(home), "--json"))
    assert book.pass_of(made["token"]) is not None
    said("site", "token", "revoke", "gateway", "-d", str(home))
    assert book.passes() == []
    book.close()
    lines = said("audit", "-d", str(home)).splitlines()
    assert ["make token gateway: for e0, s*" in lines[0], "revoke token gateway" in lines[2]] == [True, True]


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("token", "create", "gateway", "--nodes", ","), "name the nodes"),
        (("token", "create", "home", "--nodes", "e0"), "choose another name"),
        (("token", "revoke", "nobody"), "no site 'nobody'; there are no sites yet"),
        (("list",), "no coordinator runs on this directory"),
    ],
)
def test_what_makes_no_sense_changes_nothing(home: Path, arguments: tuple[str, ...], reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        CliRunner().invoke(app, ("site", *arguments, "-d", str(home)), catch_exceptions=False)
    book = MembershipStore(home / "ledger.db")
    assert (book.passes(), book.audit.newest(10)) == ([], [])
    book.close()


@pytest.mark.parametrize("setting", ["executor.memory=4g", "spark.executor.memory"])
def test_what_is_no_setting_of_spark_is_refused(setting: str) -> None:
    arguments = ("site", "--join", "https://hub:8420", "--token", "t", "--nodes", "e0", "--conf", setting)
    with pytest.raises(InputError, match=r"write --conf spark\.executor\.memory=4g"):
        CliRunner().invoke(app, arguments, catch_exceptions=False)


def test_a_master_that_spark_does_not_know_is_refused_before_anything_starts() -> None:
    arguments = ("site", "--join", "https://hub:8420", "--token", "t", "--nodes", "e0", "--master", "spork://hub")
    with pytest.raises(InputError, match=r"'spork://hub' is no master of Spark; write local\[2\], spark://HOST:7077"):
        CliRunner().invoke(app, arguments, catch_exceptions=False)


def test_certificates_are_signed_by_one_authority_and_their_keys_are_private(tmp_path: Path) -> None:
    out = tmp_path / "certificates"
    made = json.loads(said("certificates", "hub", "gateway", "-o", str(out), "--host", "10.0.0.7", "--json"))
    assert [Path(c["certificate"]).name for c in made["certificates"]] == ["hub.pem", "gateway.pem"]
    authority = (out / "ca.pem").read_bytes()
    said("certificates", "late", "-o", str(out))
    assert (out / "ca.pem").read_bytes() == authority
    for name in ("ca", "hub", "gateway", "late"):
        assert stat.S_IMODE((out / f"{name}.key").stat().st_mode) == 0o600
    for name in ("hub", "gateway", "late"):
        Tls(out / f"{name}.pem", out / f"{name}.key").check()
    (store,) = ssl.create_default_context(cafile=str(out / "ca.pem")).get_ca_certs()
    assert dict(pair for part in store["subject"] for pair in part)["commonName"] == "Meander authority"  # type: ignore[misc]
    with pytest.raises(InputError, match="this is there already; remove it"):
        CliRunner().invoke(app, ("certificates", "new", "hub", "-o", str(out)), catch_exceptions=False)
    assert not (out / "new.pem").exists()
    with pytest.raises(InputError, match="cannot be the name"):
        CliRunner().invoke(app, ("certificates", "ca", "-o", str(out)), catch_exceptions=False)


def test_a_certificate_with_the_wrong_key_is_refused_before_anything_starts(tmp_path: Path) -> None:
    said("certificates", "hub", "other", "-o", str(tmp_path))
    with pytest.raises(InputError, match="no certificate with its key"):
        Tls(tmp_path / "hub.pem", tmp_path / "other.key").check()
    with pytest.raises(InputError, match="is not there; make certificates"):
        Tls(tmp_path / "hub.pem", tmp_path / "nowhere.key").check()


@pytest.mark.parametrize(
    ("broker", "settings", "reason"),
    [
        ("hub", "", "'hub' is no broker; write its host and port, such as hub:9092"),
        ("hub:0", "", "'hub:0' is no broker"),
        ("hub:9092,", "", "'hub:9092,' is no broker"),
        ("hub:9092", "security.protocol SSL", "client.properties:1: write settings of Kafka's clients as name=value"),
    ],
)
def test_a_broker_that_is_none_is_refused_before_spark_starts(
    home: Path, tmp_path: Path, broker: str, settings: str, reason: str
) -> None:
    file = tmp_path / "client.properties"
    file.write_text(settings)
    brokers = ["--broker", broker, "--broker-settings", str(file)]
    for command in (["up", "-d", str(home)], ["site", "--join", "https://hub:1", "--token", "t", "--nodes", "e0"]):
        with pytest.raises(InputError, match=reason):
            CliRunner().invoke(app, [*command, *brokers], catch_exceptions=False)


@pytest.mark.parametrize("listen", ["0.0.0.0:8430", "[::]:0", ":8430"])
def test_a_site_that_listens_everywhere_has_to_say_where_others_reach_it(listen: str) -> None:
    command = ["site", "--join", "https://hub:1", "--token", "t", "--nodes", "e0", "--listen", listen]
    with pytest.raises(InputError, match=r"cannot reach this site at .*; say where they do with --address HOST:PORT"):
        CliRunner().invoke(app, command, catch_exceptions=False)


def test_settings_of_kafkas_clients_are_lines_with_remarks(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text('# how to get in\nsecurity.protocol = SASL_SSL\n\nsasl.jaas.config=module required a="b";\n')
    found = {"security.protocol": "SASL_SSL", "sasl.jaas.config": 'module required a="b";'}
    assert client_settings(file) == found
    with pytest.raises(InputError, match="cannot be read"):
        client_settings(tmp_path / "nowhere")


@pytest.mark.parametrize(
    "words",
    [
        ["site", "--join", "http://hub:1", "--token", "t", "--nodes", "e0"],
        ["site", "--join", "https://hub:1", "--token", "t", "--nodes", "e0", "--listen", "10.0.0.1:8430"],
        ["list", "--url", "http://hub:1", "--token", "t"],
    ],
)
def test_nothing_goes_over_the_network_in_clear_text(words: list[str]) -> None:
    found = CliRunner().invoke(app, words)
    assert isinstance(found.exception, InputError)
    assert "without TLS" in str(found.exception)
    assert "MEANDER_INSECURE=1" in str(found.exception)


@pytest.mark.parametrize(
    ("options", "is_refused"),
    [
        ({"host": "127.0.0.1"}, False),
        ({"host": "::1"}, False),
        ({"host": "0.0.0.0"}, True),
        ({"host": "10.0.0.1"}, True),
        ({"rpc_listen": "0.0.0.0:8430"}, True),
        ({"host": "0.0.0.0", "insecure": True}, False),
    ],
)
def test_a_coordinator_does_not_listen_in_clear_text(options: dict[str, Any], is_refused: bool) -> None:
    chosen = CoordinatorOptions(**options)
    if is_refused:
        with pytest.raises(InputError, match="without TLS"):
            chosen.check()
    else:
        chosen.check()
    with pytest.raises(InputError, match="mutual_tls needs certificate"):
        CoordinatorOptions(mutual_tls=True).check()
