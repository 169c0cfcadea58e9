"""Asks the package index which pinned versions have known vulnerabilities; see scripts/audit.sh."""

from __future__ import annotations

import json
import os
import re
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from pip._internal.models.index import PyPI

ROOT = Path(__file__).parents[1]
ACCEPTED = ROOT / "packaging" / "accepted-vulnerabilities.txt"
LOCKS = ("requirements.lock", "requirements-build.lock", "requirements-java.lock")
ASK_S, AT_ONCE = 5.0, 8
_PINNED = re.compile(r"^([A-Za-z0-9][\w.-]*)==([^\s;\\]+)", re.MULTILINE)

Ask = Callable[[str, str], Any]


def pinned(text: str) -> list[tuple[str, str]]:
    """Names and versions of a lock file.

    >>> pinned("pyarrow==20.0.0 --hash=sha256:0")
    [('pyarrow', '20.0.0')]
    """
    return _PINNED.findall(text)


def ask(name: str, version: str) -> Any:
    """What the index says of one version; raises OSError when it cannot be asked."""
    url = f"{os.environ.get('MEANDER_AUDIT_INDEX') or PyPI.pypi_url}/{name}/{version}/json"
    with urllib.request.urlopen(url, timeout=ASK_S) as response:
        return json.load(response)


def vulnerabilities(packages: Iterable[tuple[str, str]], ask: Ask) -> tuple[dict[str, list[str]], int]:
    """By package the vulnerabilities that are not withdrawn, and how many packages could not be asked about."""
    wanted = sorted(set(packages))
    found: dict[str, list[str]] = {}
    unasked = 0

    def one(package: tuple[str, str]) -> Any:
        try:
            return ask(*package)
        except urllib.error.HTTPError as error:
            return {} if error.code == 404 else None  # not of this index
        except (OSError, ValueError):
            return None

    if wanted and one(wanted[0]) is None and one(wanted[-1]) is None:
        return {}, len(wanted)  # offline: the others are not waited for
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for (name, version), said in zip(wanted, pool.map(one, wanted), strict=True):
            if said is None:
                unasked += 1
                continue
            names = [v["id"] for v in said.get("vulnerabilities", ()) if not v.get("withdrawn")]
            if names:
                found[f"{name}=={version}"] = names
    return found, unasked


def accepted(text: str) -> set[str]:
    """The first words of lines that are no comment."""
    return {line.split()[0] for line in text.splitlines() if line.strip() and not line.startswith("#")}


def main(locks: list[str], ask: Ask = ask) -> int:
    packages = [package for lock in locks or LOCKS for package in pinned((ROOT / lock).read_text(encoding="utf-8"))]
    found, unasked = vulnerabilities(packages, ask)
    known = accepted(ACCEPTED.read_text(encoding="utf-8"))
    bad = {package: [v for v in names if v not in known] for package, names in found.items()}
    for package, names in bad.items():
        if names:
            sys.stdout.write(f"audit: {package} has {', '.join(names)}; update it with scripts/lock.sh\n")
    if unasked:
        sys.stdout.write(f"audit: {unasked} of {len(set(packages))} packages could not be asked about; not checked\n")
    elif not any(bad.values()):
        sys.stdout.write(f"audit: {len(set(packages))} packages, no known vulnerability\n")
    return 1 if any(bad.values()) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
