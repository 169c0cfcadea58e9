"""The authenticator: whose token this is. Users have named ones, browsers those of their sessions, and the owner of
the directory has one that is good for this process alone."""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Mapping
from typing import Any

from meander.coordinator.problems import not_found
from meander.coordinator.security.failed_logins import FailedLogins
from meander.coordinator.security.page_sessions import PageSessions
from meander.coordinator.security.provider import IdentityProvider, ProviderSettings
from meander.coordinator.security.tokens import LOCAL, Identity, Role, Tokens
from meander.model.errors import InputError

OWNER = Identity(LOCAL, Role.ADMIN)


class Authenticator:
    """Of one coordinator, from any thread."""

    def __init__(self, tokens: Tokens) -> None:
        self.tokens, self.sessions, self.failed = tokens, PageSessions(), FailedLogins()
        self.own_token = secrets.token_urlsafe(24)
        self.provider: IdentityProvider | None = None
        """Users who log in elsewhere, if the settings name where."""

    def use(self, section: Mapping[str, Any]) -> None:
        """Takes the tokens of an identity provider beside our own."""
        self.provider = IdentityProvider(ProviderSettings.of(section))
        self.provider.start()

    def identity_of(self, token: str) -> Identity | None:
        if hmac.compare_digest(token.encode(), self.own_token.encode()):
            return OWNER
        known = self.tokens.identity_of(token) or self.sessions.identity_of(token)
        return known if known is not None or self.provider is None else self.provider.identity_of(token)

    def link(self, identity: Identity) -> str:
        """The part of the page's address that opens it once, for a user who looks and operates."""
        role = Role.OPERATOR if identity.role is Role.ADMIN else identity.role
        return f"#code={self.sessions.link(Identity(identity.name, role))}"

    def log_in(self, code: str) -> tuple[str, Identity]:
        """A session's token for the code of a link."""
        found = self.sessions.exchange(code)
        if found is None:
            raise not_found(InputError("this link was used before or is too old; `meander token link` makes another"))
        return found

    def revoke(self, name: str) -> None:
        self.tokens.revoke(name)
        self.sessions.end(name)
