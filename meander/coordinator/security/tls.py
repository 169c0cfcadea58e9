"""The certificate that the coordinator shows, as files."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from meander.coordinator.security.private import check_key
from meander.membership.certificate_expiry import check_not_over
from meander.model.errors import InputError


@dataclass(frozen=True, slots=True)
class Tls:
    """A certificate with its key, in PEM files."""

    certificate: Path
    key: Path
    clients: Path | None = None
    """The authority whose certificates clients have to show; None lets them in without one."""

    def check(self) -> None:
        """Raises when they cannot be read, or do not belong together."""
        for path in (self.certificate, self.key):
            if not path.is_file():
                raise InputError("this file is not there; make certificates with `meander certificates`", str(path))
        check_key(self.key)
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(self.certificate, self.key)
        except (OSError, ssl.SSLError) as error:
            reason = getattr(error, "reason", None) or error
            raise InputError(f"no certificate with its key: {reason}", str(self.certificate)) from None
        check_not_over(self.certificate)

    def for_server(self) -> dict[str, Any]:
        found: dict[str, Any] = {"ssl_certfile": str(self.certificate), "ssl_keyfile": str(self.key)}
        if self.clients is not None:
            found |= {"ssl_ca_certs": str(self.clients), "ssl_cert_reqs": ssl.CERT_REQUIRED}
        return found
