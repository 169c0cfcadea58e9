"""Proofs: how a site shows another one who it is, without any token on the way, and with nothing that is on a disk.

The key of a site follows from its token, of which the coordinator keeps a hash only: it knows the key of a site from
that site's first request on, and forgets it with its process. A proof is made with the key of the site where it is
shown, for one client, and is good for a day at most; the coordinator tells every site those that it needs. A proof is
never sent: each request has a number that counts once, signed with it. What goes through relays is signed likewise: a
relay can pass a request on once, and neither make one nor change it.

Sites of the protocol before (`FORMER`) make keys of the hashes, and show proofs as they are.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import itertools
import json
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from meander.model.clock import wall_clock_ms
from meander.model.locks import lock

COORDINATOR = "coordinator"
"""The name under which orders are given."""
HOME = "home"
"""The name of the coordinator's own host among the sites."""
ROUTE, FOR, SIGNED = "way", "for", "signed"
"""Of a ticket that goes through relays: the sites that are left to pass, the client, and its signature."""
UNTIL, NUMBER = "until", "number_once"
"""Of a signed ticket: the end of the proof it is signed with, and the number by which it counts once."""
FORMER = 3
"""The newest protocol whose proofs are of the former kind."""
PERIOD_S = 12 * 3600
"""Proofs are made anew so often, and are good for one to two of these times."""
SKEW_S = 3600
"""The difference between clocks that a proof's end is given."""
MOST_CONNECTIONS, WINDOW = 10_000, 4_096
"""Connections of one client whose numbers are known; how far a request's number may be behind the newest one."""
_RUNNING = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""A clock that goes on while the machine sleeps, where there is one."""
_BEGUN_S, _RUNNING_S = wall_clock_ms() / 1000, time.clock_gettime(_RUNNING)
_NEW, _SCHEME, _SEALED = "2.", "Meander ", "sealed:"


def steady_s() -> float:
    """The time, by a clock that does not jump while this process runs: nobody is shut out when somebody sets it."""
    return _BEGUN_S + time.clock_gettime(_RUNNING) - _RUNNING_S


def key_of(token: str) -> str:
    """The key of the site that has this token. It cannot be had from the token's hash."""
    return _mac(token, "meander network key")


def former_key_of(token: str) -> str:
    """The key of a site as the protocol before made it: the hash of its token."""
    return hashlib.sha256(token.encode()).hexdigest()


def end_of_proofs(now_s: float | None = None) -> int:
    """The time until which proofs that are made now are good."""
    return (int(steady_s() if now_s is None else now_s) // PERIOD_S + 2) * PERIOD_S


def proof(key: str, peer: str, until: int | None = None) -> str:
    """The proof with which `peer` shows, at the site with this key, that it is itself."""
    end = end_of_proofs() if until is None else until
    return f"{_NEW}{end}.{_secret(key, peer, end)}"


def former_proof(key: str, peer: str) -> str:
    return _mac(key, peer)


def records_secret(key: str, peer: str) -> str:
    """The secret that signs the records which the site with this key sends `peer` over a broker."""
    return _mac(key, f"records {peer}")


class ClientProof:
    """A client that shows at one site who it is, with each request another number that counts once."""

    def __init__(self, proof: str) -> None:
        self._proof = proof
        self._connection, self._numbers = secrets.token_hex(8), itertools.count(1)

    def shown(self) -> str:
        """The header of the next request."""
        if not self._proof.startswith(_NEW):
            return f"Bearer {self._proof}"
        _, until, secret = self._proof.split(".", 2)
        number = self._number()
        return f"{_SCHEME}{until}.{number}.{_mac(secret, f'request {number}')}"

    def signed(self, ticket: Mapping[str, Any]) -> dict[str, Any]:
        """A ticket that others may pass on, once."""
        if not self._proof.startswith(_NEW):
            return {**ticket, SIGNED: _signature(self._proof, ticket)}
        _, until, secret = self._proof.split(".", 2)
        said = {**ticket, UNTIL: int(until), NUMBER: self._number()}
        return {**said, SIGNED: _signature(secret, said)}

    def _number(self) -> str:
        return f"{self._connection}-{next(self._numbers)}"


class ProofChecker:
    """Checks what clients show at one site; from any thread."""

    def __init__(
        self, key: str, former: Callable[[], str | None] = lambda: None, clock: Callable[[], float] = steady_s
    ) -> None:
        """`former` gives the key of the former kind while the coordinator is of the version before, else None."""
        self._key, self._former, self._clock = key, former, clock
        self._lock = lock("proofs")
        self._seen: dict[str, dict[str, _Numbers]] = {}

    def is_shown(self, peer: str, shown: str) -> bool:
        """Whether a header shows that a request is this client's, and was not made before."""
        if shown.startswith(_SCHEME):
            until, _, rest = shown.removeprefix(_SCHEME).partition(".")
            number, _, mac = rest.partition(".")
            return (
                self._is_good(until)
                and _is_same(_mac(_secret(self._key, peer, int(until)), f"request {number}"), mac)
                and self._is_first(peer, number, int(until))
            )
        told = shown.removeprefix("Bearer ")  # of a site of the version before, which shows what it was told
        if told.startswith(_NEW):
            until = told.split(".", 2)[1]
            return self._is_good(until) and _is_same(proof(self._key, peer, int(until)), told)
        former = self._former()
        return former is not None and _is_same(former_proof(former, peer), told)

    def is_signed(self, peer: str, ticket: Mapping[str, Any]) -> bool:
        """Whether a ticket was made by this client for this site, and did not come before."""
        signed = str(ticket.get(SIGNED, ""))
        if UNTIL in ticket:
            until, number = str(ticket[UNTIL]), str(ticket.get(NUMBER, ""))
            return (
                self._is_good(until)
                and _is_same(_signature(_secret(self._key, peer, int(until)), ticket), signed)
                and self._is_first(peer, number, int(until))
            )
        former = self._former()
        proofs = [] if former is None else [former_proof(former, peer)]
        now = self._clock()
        proofs += [proof(self._key, peer, end_of_proofs(at)) for at in (now - PERIOD_S, now, now + PERIOD_S)]
        return any(_is_same(_signature(each, ticket), signed) for each in proofs)

    def _is_good(self, until: str) -> bool:
        if not (until.isascii() and until.isdecimal() and len(until) < 12):
            return False
        return -2 * PERIOD_S - SKEW_S < self._clock() - int(until) < SKEW_S

    def _is_first(self, peer: str, number: str, until: int) -> bool:
        """Takes a number; says whether it is new."""
        connection, _, count = number.partition("-")
        if not (count.isascii() and count.isdecimal() and len(count) < 16):
            return False
        with self._lock:
            known = self._seen.setdefault(peer, {})
            found = known.get(connection)
            if found is None:
                if len(known) >= MOST_CONNECTIONS:
                    self._forget(known)
                found = known[connection] = _Numbers(until)
            return found.take(int(count))

    def _forget(self, known: dict[str, _Numbers]) -> None:
        """Drops connections whose proofs have ended; if there are none, the oldest one."""
        ended = [c for c, numbers in known.items() if self._clock() - numbers.until >= SKEW_S]
        for connection in ended or [next(iter(known))]:
            del known[connection]


@dataclass(slots=True)
class _Numbers:
    """The numbers of one connection that were used."""

    until: int
    newest: int = 0
    used: set[int] = field(default_factory=set)

    def take(self, number: int) -> bool:
        if number <= self.newest - WINDOW or number in self.used:
            return False
        self.used.add(number)
        if number > self.newest:
            self.newest = number
            if len(self.used) > 2 * WINDOW:
                self.used = {n for n in self.used if n > number - WINDOW}
        return True


@dataclass(frozen=True, slots=True)
class PeerAddress:
    """The address of a site, and the proof for requests there."""

    address: str
    proof: str
    broker: str = ""
    """The broker that it uses, if it uses one."""
    records: str = ""
    """The secret that signs the records which it sends over a broker."""


def sealed(key: str, text: str) -> str:
    """A text as it can be kept: only somebody with the key can read it."""
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # which takes long to import

    chance = secrets.token_bytes(12)
    hidden = AESGCM(_seal(key)).encrypt(chance, text.encode(), None)
    return _SEALED + base64.b64encode(chance + hidden).decode()


def opened(key: str, text: str) -> str | None:
    """The inverse of `sealed`; None with another key. What a version before kept open is given as it is."""
    if not text.startswith(_SEALED):
        return text
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    try:
        raw = base64.b64decode(text.removeprefix(_SEALED))
        return AESGCM(_seal(key)).decrypt(raw[:12], raw[12:], None).decode()
    except (ValueError, InvalidTag):
        return None


def _seal(key: str) -> bytes:
    return hmac.digest(key.encode(), b"meander seal", "sha256")


def _secret(key: str, peer: str, until: int) -> str:
    purpose = "orders" if peer == COORDINATOR else "channels"
    return _mac(key, json.dumps([purpose, peer, until]))


def _signature(secret: str, ticket: Mapping[str, Any]) -> str:
    """The signature of a ticket; the route itself is not signed."""
    said = {name: value for name, value in ticket.items() if name not in (ROUTE, SIGNED)}
    return _mac(secret, json.dumps(said, sort_keys=True, separators=(",", ":")))


def _mac(key: str, text: str) -> str:
    return hmac.new(key.encode(), text.encode(), hashlib.sha256).hexdigest()


def _is_same(right: str, shown: str) -> bool:
    return hmac.compare_digest(right.encode(), shown.encode())
