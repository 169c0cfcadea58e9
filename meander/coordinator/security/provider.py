"""Tokens of an identity provider (OpenID Connect): users who log in elsewhere have the role that their groups have.

A token is a JSON Web Token that the provider signed. It is checked with the provider's public keys alone, so nobody is
asked when a request comes: keys are fetched at the start, once an hour, and when a token names one that is not known.
"""

from __future__ import annotations

import base64
import json
import logging
import threading
import time
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from meander.coordinator.security.tokens import Identity, Role, role_by
from meander.membership.addresses import check_clear_text
from meander.model.errors import InputError, unknown
from meander.model.locks import lock

_log = logging.getLogger(__name__)
SKEW_S = 60.0
OFTEN_S, SELDOM_S, FETCH_S = 300.0, 3_600.0, 10.0
"""Keys are fetched again at most and at least so often; how long the provider may take."""
LONGEST, LONGEST_NAME, MOST_KEY_BYTES = 16_000, 200, 1_000_000
DISCOVERY = "/.well-known/openid-configuration"
Verify = Callable[[bytes, bytes], bool]
"""Whether a signature is that of a text."""


@dataclass(frozen=True, slots=True)
class ProviderSettings:
    """The section `[oidc]` of the settings."""

    issuer: str
    audience: str
    roles: Mapping[str, Role]
    """The role of those who have a value in the claim `claim`."""
    claim: str = "groups"
    name: str = "sub"
    """The claim that names the user."""
    keys: str = ""
    """A file or an address with the provider's keys, if they are not where its discovery document says."""

    @staticmethod
    def of(section: Mapping[str, Any]) -> ProviderSettings:
        """Raises for what is missing or not known."""
        names = ("issuer", "audience", "roles", "claim", "name", "keys")
        for given in section:
            if given not in names:
                raise unknown("setting of [oidc]", given, names)
        roles = section.get("roles")
        texts = {name: section[name] for name in names if name != "roles" and name in section}
        is_text = all(isinstance(text, str) and text for text in texts.values())
        if not is_text or not {"issuer", "audience"} <= set(texts):
            raise InputError('[oidc] needs issuer and audience, such as issuer = "https://login.example.org"')
        if not isinstance(roles, Mapping) or not roles:
            raise InputError('[oidc] needs roles, such as roles = {fleet-operators = "operator"}')
        settings = ProviderSettings(roles={str(v): role_by(str(r)) for v, r in roles.items()}, **texts)
        for address in (settings.issuer, settings.keys):
            parts = urlsplit(address)
            if parts.scheme == "http":
                check_clear_text(parts.hostname or "", f"the identity provider at {address}", insecure=False)
        if urlsplit(settings.issuer).scheme not in ("http", "https"):
            raise InputError(
                f"[oidc]: issuer {settings.issuer!r} is no address; write one such as https://login.example.org"
            )
        return settings


@dataclass(slots=True)
class _Keys:
    known: Mapping[str, tuple[str, Verify]] = field(default_factory=dict)
    """By name the algorithm and the check of each key."""
    fetched: float = float("-inf")
    is_fetching: bool = False


class IdentityProvider:
    """One provider, from any thread."""

    def __init__(
        self,
        settings: ProviderSettings,
        clock: Callable[[], float] = time.time,
        fetch: Callable[[str], bytes] | None = None,
    ) -> None:
        self.settings, self._clock, self._fetch = settings, clock, fetch or _fetched
        self._lock = lock("identity provider")
        self._keys = _Keys()

    def start(self) -> None:
        """Fetches the keys; without them nobody gets in by this way until they are there."""
        threading.Thread(target=self._refresh, name="identity provider", daemon=True).start()

    def identity_of(self, token: str) -> Identity | None:
        """The user of a token; None unless it is good now, for this service, and one of its roles is known."""
        parts = token.split(".")
        if len(parts) != 3 or len(token) > LONGEST:
            return None
        try:
            header, claims = _object(parts[0]), _object(parts[1])
            signature = _decoded(parts[2])
        except (ValueError, RecursionError):
            return None
        if self._clock() - self._keys.fetched > SELDOM_S:
            self._refetch()
        found = self._keys.known.get(str(header.get("kid", "")))
        if found is None:
            self._refetch()
            return None
        algorithm, verify = found
        signed = f"{parts[0]}.{parts[1]}".encode()
        if header.get("alg") != algorithm or "crit" in header or not verify(signature, signed):
            return None
        return self._identity(claims)

    def _identity(self, claims: Mapping[str, Any]) -> Identity | None:
        settings, now = self.settings, self._clock()
        audience = claims.get("aud")
        audiences = audience if isinstance(audience, list) else [audience]
        begin, end = claims.get("nbf", 0), claims.get("exp", "")
        if claims.get("iss") != settings.issuer or settings.audience not in audiences:
            return None
        if not (_is_number(begin) and _is_number(end)) or not float(begin) - SKEW_S <= now < float(end) + SKEW_S:
            return None
        name, values = claims.get(settings.name), claims.get(settings.claim)
        values = [values] if isinstance(values, str) else values if isinstance(values, list) else []
        roles = [settings.roles[value] for value in values if isinstance(value, str) and value in settings.roles]
        if not isinstance(name, str) or not name.isprintable() or not 0 < len(name) <= LONGEST_NAME or not roles:
            return None
        return Identity(f"oidc:{name}", max(roles, key=list(Role).index))  # no name of ours has a colon

    # ---------------------------------------------------------------- keys

    def _refetch(self) -> None:
        """Fetches the keys beside the request, unless that was done lately."""
        with self._lock:
            if self._keys.is_fetching or self._clock() - self._keys.fetched < OFTEN_S:
                return
            self._keys.is_fetching = True
        self.start()

    def _refresh(self) -> None:
        try:
            known = self._read()
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            _log.warning("the keys of %s cannot be had: %s", self.settings.issuer, error)
            known = self._keys.known
        with self._lock:
            self._keys = _Keys(known, self._clock())

    def _read(self) -> Mapping[str, tuple[str, Verify]]:
        place = self.settings.keys
        if not place:
            discovered = json.loads(self._fetch(self.settings.issuer.rstrip("/") + DISCOVERY))
            if discovered["issuer"] != self.settings.issuer:
                raise ValueError(f"its discovery document is that of {discovered['issuer']!r}")
            place = str(discovered["jwks_uri"])
        text = self._fetch(place) if "://" in place else Path(place).read_bytes()
        found = {}
        for each in json.loads(text)["keys"]:
            if each.get("use", "sig") == "sig" and (key := _key(each)) is not None:
                found[str(each.get("kid", ""))] = key
        return found


def _fetched(address: str) -> bytes:
    parts = urlsplit(address)
    if parts.scheme != "https":
        check_clear_text(parts.hostname or "", f"the identity provider at {address}", insecure=parts.scheme != "http")
        if parts.scheme != "http":
            raise ValueError(f"{address} is no address of https")
    with urllib.request.urlopen(address, timeout=FETCH_S) as answer:
        found: bytes = answer.read(MOST_KEY_BYTES)
    return found


def _key(described: Mapping[str, Any]) -> tuple[str, Verify] | None:
    """A public key (JWK) of a kind that is known, with its algorithm: the token does not choose it."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
    from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature

    def checked(verify: Callable[[bytes, bytes], None]) -> Verify:
        def good(signature: bytes, text: bytes) -> bool:
            try:
                verify(signature, text)
            except (InvalidSignature, ValueError):
                return False
            return True

        return good

    def number(name: str) -> int:
        return int.from_bytes(_decoded(str(described[name])), "big")

    match described.get("kty"):
        case "RSA" if described.get("alg", "RS256") == "RS256":
            key = rsa.RSAPublicNumbers(number("e"), number("n")).public_key()
            if key.key_size < 2048:
                return None
            return "RS256", checked(lambda s, text: key.verify(s, text, padding.PKCS1v15(), hashes.SHA256()))
        case "EC" if described.get("crv") == "P-256":
            curve = ec.EllipticCurvePublicNumbers(number("x"), number("y"), ec.SECP256R1()).public_key()

            def verify(signature: bytes, text: bytes) -> None:
                if len(signature) != 64:
                    raise ValueError
                pair = (int.from_bytes(signature[:32], "big"), int.from_bytes(signature[32:], "big"))
                curve.verify(encode_dss_signature(*pair), text, ec.ECDSA(hashes.SHA256()))

            return "ES256", checked(verify)
    return None


def _object(text: str) -> Mapping[str, Any]:
    found = json.loads(_decoded(text))
    if not isinstance(found, dict):
        raise ValueError
    return found


def _decoded(text: str) -> bytes:
    return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
