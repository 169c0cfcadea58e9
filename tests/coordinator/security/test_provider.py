"""Tokens of an identity provider under attack: only what it signed, for this service and now, lets anybody in."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

from meander.coordinator.security.authenticator import Authenticator
from meander.coordinator.security.provider import OFTEN_S, SKEW_S, IdentityProvider, ProviderSettings
from meander.coordinator.security.tokens import Identity, Role, Tokens
from meander.model.errors import InputError

NOW = 1_800_000_000.0
ISSUER = "https://login.example.org"
RSA, OTHER_RSA = (rsa.generate_private_key(65537, 2048) for _ in range(2))
CURVE = ec.generate_private_key(ec.SECP256R1())
SECTION = {"issuer": ISSUER, "audience": "meander", "roles": {"ops": "operator", "all": "reader", "boss": "admin"}}
CLAIMS = {"iss": ISSUER, "aud": "meander", "sub": "anna", "exp": NOW + 300, "groups": ["all", "ops", "unknown"]}


def text_of(value: bytes) -> str:
    return base64.urlsafe_b64encode(value).rstrip(b"=").decode()


def number(value: int, size: int = 0) -> str:
    return text_of(value.to_bytes(size or (value.bit_length() + 7) // 8, "big"))


def keys() -> bytes:
    rsa_numbers, point = RSA.public_key().public_numbers(), CURVE.public_key().public_numbers()
    return json.dumps(
        {
            "keys": [
                {"kty": "RSA", "kid": "r", "use": "sig", "n": number(rsa_numbers.n), "e": number(rsa_numbers.e)},
                {"kty": "EC", "kid": "e", "crv": "P-256", "x": number(point.x, 32), "y": number(point.y, 32)},
                {"kty": "oct", "kid": "o", "k": text_of(b"secret")},
            ]
        }
    ).encode()


def signed(claims: Any = CLAIMS, key: Any = RSA, **header: Any) -> str:
    head = {"alg": "RS256", "kid": "r", **header}
    said = f"{text_of(json.dumps(head).encode())}.{text_of(json.dumps(claims).encode())}"
    if isinstance(key, ec.EllipticCurvePrivateKey):
        pair = decode_dss_signature(key.sign(said.encode(), ec.ECDSA(hashes.SHA256())))
        return f"{said}.{text_of(b''.join(n.to_bytes(32, 'big') for n in pair))}"
    return f"{said}.{text_of(key.sign(said.encode(), padding.PKCS1v15(), hashes.SHA256()))}"


@pytest.fixture
def provider(tmp_path: Path) -> IdentityProvider:
    (tmp_path / "keys.json").write_bytes(keys())
    settings = ProviderSettings.of({**SECTION, "keys": str(tmp_path / "keys.json")})
    found = IdentityProvider(settings, lambda: NOW)
    found._refresh()
    return found


def test_a_user_has_the_highest_role_of_the_groups(provider: IdentityProvider) -> None:
    assert provider.identity_of(signed()) == Identity("oidc:anna", Role.OPERATOR)
    assert provider.identity_of(signed(key=CURVE, alg="ES256", kid="e")) == Identity("oidc:anna", Role.OPERATOR)
    assert provider.identity_of(signed({**CLAIMS, "groups": "all", "aud": ["x", "meander"]})) == Identity(
        "oidc:anna", Role.READER
    )


def with_public_key_as_secret() -> str:
    public = RSA.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    said = signed(alg="HS256").rpartition(".")[0]
    return f"{said}.{text_of(hmac.new(public, said.encode(), hashlib.sha256).digest())}"


BAD: dict[str, Callable[[], str]] = {
    "no token": lambda: "",
    "two parts": lambda: "a.b",
    "no base64": lambda: "?.?.?",
    "no JSON": lambda: "YQ.YQ.YQ",
    "deep JSON": lambda: f"{text_of(b'[' * 3000)}.{text_of(b'[' * 3000)}.YQ",
    "a list": lambda: f"{text_of(b'[]')}.{text_of(b'[]')}.YQ",
    "too long": lambda: signed({**CLAIMS, "more": "x" * 20_000}),
    "unsigned": lambda: signed(alg="none").rpartition(".")[0] + ".",
    "an algorithm of the token's choice": with_public_key_as_secret,
    "another key's algorithm": lambda: signed(alg="ES256"),
    "another kind of key": lambda: signed(kid="e"),
    "a shared secret's name": lambda: signed(kid="o"),
    "an unknown key": lambda: signed(kid="x"),
    "somebody else's key": lambda: signed(key=OTHER_RSA),
    "critical extensions": lambda: signed(crit=["exp"]),
    "changed claims": lambda: ".".join(
        (signed().split(".")[0], text_of(json.dumps({**CLAIMS, "groups": ["boss"]}).encode()), signed().split(".")[2])
    ),
    "another issuer": lambda: signed({**CLAIMS, "iss": "https://evil.example.org"}),
    "another audience": lambda: signed({**CLAIMS, "aud": "shop"}),
    "no audience": lambda: signed({k: v for k, v in CLAIMS.items() if k != "aud"}),
    "expired": lambda: signed({**CLAIMS, "exp": NOW - SKEW_S}),
    "no end": lambda: signed({k: v for k, v in CLAIMS.items() if k != "exp"}),
    "an end that is no number": lambda: signed({**CLAIMS, "exp": "9" * 20}),
    "not yet": lambda: signed({**CLAIMS, "nbf": NOW + SKEW_S + 1}),
    "no role": lambda: signed({**CLAIMS, "groups": ["unknown"]}),
    "roles that are none": lambda: signed({**CLAIMS, "groups": [{"ops": 1}, 3, None]}),
    "no name": lambda: signed({**CLAIMS, "sub": ""}),
    "a name that breaks lines": lambda: signed({**CLAIMS, "sub": "anna\nroot"}),
}


@pytest.mark.parametrize("token", BAD.values(), ids=BAD)
def test_any_other_token_lets_nobody_in(provider: IdentityProvider, token: Callable[[], str]) -> None:
    assert provider.identity_of(token()) is None


def test_our_own_tokens_go_on_beside_it(provider: IdentityProvider) -> None:
    authenticator = Authenticator(Tokens())
    anna = authenticator.tokens.make("anna", Role.READER)
    assert authenticator.identity_of(signed()) is None
    authenticator.provider = provider
    assert authenticator.identity_of(anna) == Identity("anna", Role.READER)
    assert authenticator.identity_of(signed()) == Identity("oidc:anna", Role.OPERATOR)


def test_keys_are_found_by_discovery_and_an_unknown_one_makes_no_flood_of_requests() -> None:
    asked: list[str] = []
    now = [NOW]

    def fetch(address: str) -> bytes:
        asked.append(address)
        return json.dumps({"issuer": ISSUER, "jwks_uri": f"{ISSUER}/keys"}).encode() if "well" in address else keys()

    found = IdentityProvider(ProviderSettings.of(SECTION), lambda: now[0], fetch)
    found._refresh()
    assert asked == [f"{ISSUER}/.well-known/openid-configuration", f"{ISSUER}/keys"]
    assert found.identity_of(signed()) is not None
    for _ in range(100):
        assert found.identity_of(signed(kid="new")) is None
    assert len(asked) == 2
    now[0] += OFTEN_S
    started: list[bool] = []
    found.start = lambda: started.append(True)  # type: ignore[method-assign]
    for _ in range(100):
        found.identity_of(signed(kid="new"))
    assert started == [True]


def test_a_discovery_document_of_somebody_else_is_not_followed() -> None:
    stranger = json.dumps({"issuer": "https://evil.example.org", "jwks_uri": "https://evil.example.org/keys"}).encode()
    found = IdentityProvider(ProviderSettings.of(SECTION), lambda: NOW, lambda address: stranger)
    found._refresh()
    assert found.identity_of(signed()) is None


@pytest.mark.parametrize(
    ("section", "reason"),
    [
        ({}, "needs issuer and audience"),
        ({"issuer": ISSUER, "audience": "a"}, "needs roles"),
        ({**SECTION, "roles": {"ops": "king"}}, "no role 'king'"),
        ({**SECTION, "isuer": "x"}, "no setting of .oidc. 'isuer'"),
        ({**SECTION, "issuer": "login"}, "is no address"),
        ({**SECTION, "issuer": "http://login.example.org"}, "without TLS"),
    ],
)
def test_settings_that_make_no_sense_are_refused(section: dict[str, Any], reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        ProviderSettings.of(section)
