"""Certificates that are over, or soon will be."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from typer.testing import CliRunner

from meander.cli.main import app
from meander.coordinator.security import certificates
from meander.coordinator.security.certificates import CertificateFiles
from meander.coordinator.security.tls import Tls
from meander.membership.certificate_expiry import SOON_MS, end_ms, expiry_problems
from meander.model.errors import InputError

DAY_MS = 24 * 3_600_000


def made(directory: Path, monkeypatch: pytest.MonkeyPatch, days: int) -> CertificateFiles:
    monkeypatch.setattr(certificates, "DAYS", days)
    monkeypatch.setattr(certificates, "EARLIER", timedelta(days=10))
    return certificates.make(directory, ["hub"])[0]


def test_a_certificate_that_is_over_is_refused_at_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = made(tmp_path, monkeypatch, -1)
    with pytest.raises(InputError, match=r"was good until .* UTC; make another one with `meander certificates`"):
        Tls(files.certificate, files.key).check()
    pair = ["--certificate", str(files.certificate), "--key", str(files.key)]
    answer = CliRunner().invoke(app, ["site", "--join", "https://hub:1", "--token", "t", "--nodes", "n", *pair])
    assert isinstance(answer.exception, InputError)
    assert "was good until" in str(answer.exception)


def test_one_that_is_good_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = made(tmp_path, monkeypatch, 30)
    Tls(files.certificate, files.key).check()
    assert expiry_problems(files.certificate.read_bytes()) == []


def test_health_says_when_it_soon_is_over_and_when_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = made(tmp_path, monkeypatch, 30).certificate.read_bytes()
    end = end_ms(text)
    assert end is not None
    assert expiry_problems(text, lambda: end - SOON_MS - 1) == []
    (soon,) = expiry_problems(text, lambda: end - 3 * DAY_MS)
    assert ", 3 more days; make another one" in soon
    (over,) = expiry_problems(text, lambda: end)
    assert "nobody can connect any more" in over


def test_what_is_no_certificate_is_left_to_those_who_read_it() -> None:
    assert expiry_problems(b"no certificate") == []
