"""The keys of sites on the network, which follow from their tokens: each is learned from the requests of its site.

They are kept beside the ledger for the next start, sealed with the key of the directory: who has the ledger or a backup
cannot show anything with them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from meander.coordinator.directory.directory import CoordinatorDirectory, own_secret
from meander.coordinator.security.private import write_private
from meander.model.locks import lock
from meander.run.channels.flight.proof import key_of, opened, sealed


class NetworkKeys:
    """Those of one directory, from any thread."""

    def __init__(self, home: CoordinatorDirectory) -> None:
        self._home = home
        self._lock = lock("network keys")
        self._known: dict[str, tuple[str, str]] = dict(self._kept())
        """By site the hash of its token, and its key."""

    def learn(self, site: str, digest: str, token: str) -> None:
        """A site has shown its token."""
        if self._known.get(site, ("",))[0] == digest:
            return
        with self._lock:
            self._known = {**self._known, site: (digest, key_of(token))}
            write_private(self._home.network_keys, sealed(own_secret(self._home), json.dumps(self._known)))

    def of(self, site: str, digest: str) -> str | None:
        """The key of the site whose token has this hash; None before it was heard."""
        found, key = self._known.get(site, ("", ""))
        return key if found == digest else None

    def _kept(self) -> Mapping[str, tuple[str, str]]:
        if not (self._home.network_keys.exists() and self._home.secret.exists()):
            return {}
        try:
            text = opened(own_secret(self._home), self._home.network_keys.read_text(encoding="utf-8"))
            return {} if text is None else {site: (found, key) for site, (found, key) in json.loads(text).items()}
        except (OSError, ValueError):
            return {}  # sites are heard anew
