"""The HTTP client that commands share: it finds the coordinator, asks, and puts what goes wrong into one sentence."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from pathlib import Path
from ssl import SSLCertVerificationError
from typing import Annotated, Any, NoReturn
from urllib.parse import quote, urlencode, urlsplit

import typer

from meander.coordinator.directory.directory import DEFAULT, CoordinatorDirectory, announced, written_settings
from meander.membership.addresses import INSECURE, check_clear_text
from meander.membership.http_client import Shown, trusting
from meander.model.errors import InputError

FAILED = 1
TIMEOUT_S = 70.0
BASE = "/api/v1"

Directory = Annotated[
    Path, typer.Option("--dir", "-d", envvar="MEANDER_DIR", help="The coordinator's directory, made by `meander init`.")
]
Url = Annotated[
    str | None,
    typer.Option("--url", envvar="MEANDER_URL", help="The coordinator's address, instead of what its directory says."),
]
Token = Annotated[
    str | None,
    typer.Option("--token", envvar="MEANDER_TOKEN", help="A token of `meander token make`, instead of the owner's."),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
HERE = DEFAULT


@dataclass(frozen=True, slots=True)
class ServiceClient:
    """Requests to one coordinator."""

    address: str
    token: str
    ca: Path | None = None
    """The authority that signed the coordinator's certificate, unless the system knows it."""
    shown: Shown = (None, None)
    """The certificate to show where the coordinator asks for one, and its key."""

    def get(self, path: str, **query: Any) -> Any:
        return self._ask("GET", path, query)

    def send(self, method: str, path: str, body: Any = None, **query: Any) -> Any:
        """A request that changes something; sent again by hand, it would be another one."""
        return self._ask(method, path, query, body, {"Idempotency-Key": uuid.uuid4().hex})

    def download(self, method: str, path: str) -> Iterator[bytes]:
        """An answer that may be large, piece by piece."""
        with self._request(method, path, {}, None, {}, TIMEOUT_S) as response:
            while block := response.read(1 << 20):
                yield block

    def _ask(
        self, method: str, path: str, query: Mapping[str, Any], body: Any = None, more: Mapping[str, str] | None = None
    ) -> Any:
        with self._request(method, path, query, body, more or {}, TIMEOUT_S) as response:
            text = response.read()
        return json.loads(text) if text else None

    @contextlib.contextmanager
    def _request(
        self,
        method: str,
        path: str,
        query: Mapping[str, Any],
        body: Any,
        more: Mapping[str, str],
        timeout_s: float | None,
    ) -> Iterator[HTTPResponse]:
        parts = urlsplit(self.address)
        host, port = parts.hostname or "", parts.port
        connection: HTTPConnection
        if parts.scheme == "https":
            connection = HTTPSConnection(host, port, timeout=timeout_s, context=trusting(self.ca, self.shown))
        else:
            connection = HTTPConnection(host, port, timeout=timeout_s)
        chosen = {key: value for key, value in query.items() if value is not None}
        target = f"{parts.path.rstrip('/')}{BASE}{path}" + (f"?{urlencode(chosen, doseq=True)}" if chosen else "")
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json", **more}
        try:
            connection.request(method, target, None if body is None else json.dumps(body), headers)
            response = connection.getresponse()
            if response.status >= 400:
                _fail(response.status, response.read())
            yield response
        except SSLCertVerificationError as error:
            raise InputError(
                f"the certificate of {self.address} is not trusted: {error.verify_message}; set MEANDER_CA to the "
                "certificate of the authority that signed it"
            ) from None
        except (OSError, HTTPException) as error:
            raise InputError(
                f"no coordinator answers at {self.address} ({error}); start it with `meander up`"
            ) from None
        finally:
            connection.close()

    def watch(self, kinds: str | None = None) -> Iterator[tuple[str, Any]]:
        """Yields events as they happen: kinds and values."""
        with self._request("GET", "/stream", {"kinds": kinds}, None, {}, None) as response:
            kind = ""
            for raw in response:
                line = raw.decode().rstrip("\n")
                if line.startswith("event: "):
                    kind = line.removeprefix("event: ")
                elif line.startswith("data: "):
                    yield kind, json.loads(line.removeprefix("data: "))


def _fail(status: int, body: bytes) -> NoReturn:
    """Prints the coordinator's refusal."""
    try:
        detail = str(json.loads(body)["detail"])
    except (ValueError, KeyError, TypeError):
        detail = f"the answer was {status}, and not in words; is this the address of a coordinator?"
    if status >= 500 and status != 503:
        typer.secho(f"error: {detail}", err=True, fg=typer.colors.RED if sys.stderr.isatty() else None)
        raise typer.Exit(FAILED)
    raise InputError(detail)


def connect(directory: Path, url: str | None, token: str | None) -> ServiceClient:
    """The coordinator of a directory, or the one at an address."""
    home = CoordinatorDirectory(directory)
    if url is not None:
        if urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).hostname:
            raise InputError(f"{url!r} is no address; write one such as http://127.0.0.1:8420")
        if token is None and not home.exists:
            raise InputError("give --token (or MEANDER_TOKEN) with --url, or --dir with the coordinator's directory")
        if urlsplit(url).scheme == "http":
            check_clear_text(urlsplit(url).hostname or "", f"the coordinator at {url}", INSECURE in os.environ)
        return ServiceClient(url.rstrip("/"), token or _owners_token(home), _authority(home), _shown(home))
    home.check()
    found = announced(home)
    if found is None or not found.runs:
        raise InputError("no coordinator runs on this directory; start it with `meander up`", str(directory))
    return ServiceClient(found.address, token or _owners_token(home), _authority(home), _shown(home))


def _owners_token(home: CoordinatorDirectory) -> str:
    """The token that the running coordinator wrote into its directory for the directory's owner."""
    found = announced(home)
    if found is None or not found.token:
        raise InputError(
            "no coordinator that lets its owner in runs on this directory; start it with `meander up`, or give --token",
            str(home.directory),
        )
    return found.token


def _authority(home: CoordinatorDirectory) -> Path | None:
    """The authority to trust: from the environment, or else from the settings of the directory."""
    given = os.environ.get("MEANDER_CA") or (written_settings(home).get("ca") if home.exists else None)
    return None if given is None else Path(given)


def _shown(home: CoordinatorDirectory) -> Shown:
    """The certificate to show, and its key: from the environment, or else those of the directory's own coordinator."""
    given = os.environ.get("MEANDER_CERTIFICATE"), os.environ.get("MEANDER_KEY")
    if given == (None, None) and home.exists and (settings := written_settings(home)).get("mutual_tls"):
        given = settings.get("certificate"), settings.get("key")
    certificate, key = (None if path is None else Path(path) for path in given)
    return certificate, key


def at(query: str, *more: str) -> str:
    """The path of a query."""
    return "/".join(["/queries", quote(query, safe=""), *more])


def complete_query(context: typer.Context, incomplete: str) -> list[str]:
    """Names of queries, for the shell; none when the coordinator does not answer."""
    given = context.params
    try:
        client = connect(Path(given.get("directory") or HERE), given.get("url"), given.get("token"))
        return [q["id"] for q in client.get("/queries") if q["id"].startswith(incomplete)]
    except (Exception, SystemExit):
        return []


def show(value: Any) -> None:
    """JSON for other programs."""
    typer.echo(json.dumps(value, indent=2, ensure_ascii=False))


QueryName = Annotated[str, typer.Argument(help="The query's name.", autocompletion=complete_query, show_default=False)]
