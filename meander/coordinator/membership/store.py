"""The membership store of sites: tokens, memberships, claims, links that wait for their nodes, and the audit log.

Its tables are in the ledger's file; it has a connection of its own, because many threads answer sites while the ledger
belongs to the decision core. It can be opened without a coordinator, to make tokens.
"""

from __future__ import annotations

import json
import secrets
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import astuple, dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from meander.coordinator import epochs
from meander.coordinator.directory.directory import CoordinatorDirectory
from meander.coordinator.ledger.absent_node_links import AwayLinks
from meander.coordinator.ledger.migrations import migrate
from meander.coordinator.membership.audit_log import AuditEntry, AuditLog
from meander.coordinator.membership.network_keys import NetworkKeys
from meander.coordinator.problems import conflict, not_found
from meander.coordinator.security.tokens import RESERVED, digest
from meander.membership.protocol import Epoch
from meander.model.errors import InputError, unknown
from meander.model.locks import lock, reentrant_lock
from meander.model.topology.elements import Link


@dataclass(frozen=True, slots=True)
class Pass:
    """The rights of a token."""

    site: str
    nodes: tuple[str, ...]
    """Names, and patterns with `*` and `?`."""
    made_ms: int

    def covers(self, node: str) -> bool:
        return any(fnmatchcase(node, pattern) for pattern in self.nodes)

    def as_json(self) -> dict[str, Any]:
        return {"site": self.site, "nodes": list(self.nodes), "made_ms": self.made_ms}


@dataclass(frozen=True, slots=True)
class MemberRow:
    """A site as it is written down."""

    name: str
    state: str
    instance: str
    session: str
    address: str
    version: str
    since_ms: int
    clock_ms: int
    broker: str
    protocol: int
    """The version of the site protocol that it and the coordinator agreed on."""


class MembershipStore:
    """One file, from any thread."""

    def __init__(self, path: Path) -> None:
        try:
            self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=10.0)
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA synchronous = NORMAL")
            migrate(self._db)
        except sqlite3.DatabaseError as error:
            raise InputError(f"this is no ledger: {error}; restore a backup", str(path)) from None
        self._lock, self._looking = reentrant_lock("membership store"), lock("membership store reads")
        self._looker = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, check_same_thread=False)
        self._away_links = AwayLinks(self._db)
        self._network_keys = NetworkKeys(CoordinatorDirectory(path.parent))
        self.audit = AuditLog(self._db, self._lock)

    def close(self) -> None:
        with self._lock, self._looking:
            self._looker.close()
            self._db.close()

    @contextmanager
    def transaction(self, epoch: Epoch | None = None) -> Iterator[None]:
        """All or nothing; with an epoch, nothing when it is over."""
        with self._lock:
            self._db.execute("BEGIN IMMEDIATE")
            try:
                if epoch is not None:
                    epochs.check(self._db, epoch)
                yield
            except BaseException:
                self._db.execute("ROLLBACK")
                raise
            self._db.execute("COMMIT")

    # ---------------------------------------------------------------- epochs

    def begin_epoch(self, at_ms: int) -> Epoch:
        """The epoch of a coordinator that starts."""
        with self.transaction():
            epoch = epochs.begin(self._db, at_ms)
            self.audit.note(AuditEntry(at_ms, "coordinator", "start", f"epoch {epoch.number}"))
        return epoch

    def check_epoch(self, epoch: Epoch) -> None:
        """Raises when a newer one has begun."""
        with self._looking:
            epochs.check(self._looker, epoch)

    def is_genuine(self, epoch: Epoch) -> bool:
        with self._lock:
            return epochs.is_genuine(self._db, epoch)

    # ---------------------------------------------------------------- tokens

    def make_token(self, site: str, nodes: Sequence[str], at_ms: int, who: str, *, renew: bool = False) -> str:
        """A new token, which is shown once. An older one of the same site is good no more when `renew` is set."""
        if site in RESERVED:
            raise InputError(f"{site!r} is what another actor is called; choose another name for the site")
        if not nodes:
            raise InputError("name the nodes that the site may act for, such as --nodes train-7 or --nodes 'train-*'")
        token = secrets.token_urlsafe(24)
        with self.transaction():
            if not renew and site in self._read_sites_with_tokens():
                raise conflict(f"site {site!r} has a token already; revoke it first, or renew it")
            row = (site, digest(token), json.dumps(list(nodes)), at_ms)
            self._db.execute("INSERT OR REPLACE INTO site_tokens VALUES (?, ?, ?, ?)", row)
            self.audit.note(AuditEntry(at_ms, who, "make token", site, "for " + ", ".join(nodes)))
        return token

    def revoke(self, site: str, at_ms: int, who: str) -> None:
        """A token is good no more."""
        with self.transaction():
            known = self._read_sites_with_tokens()
            if site not in known:
                raise not_found(unknown("site", site, known))
            self._db.execute("DELETE FROM site_tokens WHERE site = ?", (site,))
            self.audit.note(AuditEntry(at_ms, who, "revoke token", site))

    def passes(self) -> list[Pass]:
        with self._lock:
            rows = self._db.execute("SELECT site, nodes, made_ms FROM site_tokens ORDER BY site").fetchall()
        return [Pass(site, tuple(json.loads(nodes)), made) for site, nodes, made in rows]

    def pass_of(self, token: str) -> Pass | None:
        """The rights of a token. It is found by its hash, so the time that takes says nothing about the token."""
        query = "SELECT site, nodes, made_ms FROM site_tokens WHERE digest = ?"
        found = digest(token)
        with self._looking:  # a connection of its own: readers do not wait for writers
            row = self._looker.execute(query, (found,)).fetchone()
        if row is None:
            return None
        self._network_keys.learn(row[0], found, token)
        return Pass(row[0], tuple(json.loads(row[1])), row[2])

    def network_key(self, site: str, token: str) -> str | None:
        """The key of a site whose token has this hash; None before it was heard."""
        return self._network_keys.of(site, token)

    def keys(self) -> dict[str, str]:
        """The hashes of all tokens, by site."""
        with self._lock:
            return dict(self._db.execute("SELECT site, digest FROM site_tokens").fetchall())

    def _read_sites_with_tokens(self) -> list[str]:
        return [site for (site,) in self._db.execute("SELECT site FROM site_tokens")]

    # ---------------------------------------------------------------- sites

    def sites(self) -> list[MemberRow]:
        with self._lock:
            return [MemberRow(*row) for row in self._db.execute("SELECT * FROM sites ORDER BY name")]

    def save_site(self, row: MemberRow) -> None:
        self._db.execute("INSERT OR REPLACE INTO sites VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", astuple(row))

    def claims(self) -> dict[str, str]:
        """Sites by node."""
        with self._lock:
            return dict(self._db.execute("SELECT node, site FROM claims ORDER BY node").fetchall())

    def claim(self, site: str, nodes: Iterable[str]) -> None:
        """These are a site's nodes, and no others; the records of those it had already stay."""
        kept = set(nodes)
        had = {n for (n,) in self._db.execute("SELECT node FROM claims WHERE site = ?", (site,))}
        self._db.executemany("DELETE FROM claims WHERE node = ?", [(n,) for n in had - kept])
        self._db.executemany("INSERT INTO claims VALUES (?, ?, NULL)", [(n, site) for n in sorted(kept - had)])

    def drained(self, nodes: Iterable[str]) -> dict[str, int]:
        """The slots that nodes had before they drained, of those that do."""
        wanted = set(nodes)
        with self._lock:
            rows = self._db.execute("SELECT node, slots FROM claims WHERE slots IS NOT NULL").fetchall()
        return {node: slots for node, slots in rows if node in wanted}

    def save_drained(self, slots: Mapping[str, int | None]) -> None:
        """Keeps the usual slots of draining nodes; None for nodes that do not drain."""
        with self.transaction():
            self._db.executemany("UPDATE claims SET slots = ? WHERE node = ?", [(s, n) for n, s in slots.items()])

    # ---------------------------------------------------------------- links of nodes that are away

    def keep_links(self, links: Iterable[Link]) -> None:
        """Links in one direction each."""
        with self.transaction():
            self._away_links.keep_arcs(links)

    def kept_links(self, node: str) -> list[Link]:
        """Links from and to a node, in one direction each."""
        with self._lock:
            return self._away_links.arcs_of(node)

    def drop_links(self, ends: Iterable[tuple[str, str]]) -> None:
        with self.transaction():
            self._away_links.drop_arcs(ends)
