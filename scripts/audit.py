"""Asks the package index which pinned versions have known vulnerabilities; see scripts/audit.sh."""

from __future__ import annotations

import json
import os
import re
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from pip._internal.models.index import PyPI

ROOT = Path(__file__).parents[1]
ACCEPTED = ROOT / "packaging" / "accepted-vulnerabilities.txt"
LOCKS = ("requirements.lock", "requirements-build.lock", "requirements-java.lock")
ASK_S, AT_ONCE, MOST_S = 5.0, 8, 60.0
"""Seconds for one answer, questions at the same time, and seconds for all of them: what is left is not asked."""
_PINNED = re.compile(r"^([A-Za-z0-9][\w.-]*)==([^\s;\\]+)", re.MULTILINE)

ADVICE = """audit: known since the versions were pinned; the change that is built has nothing to do with it. Either
  - update: scripts/lock.sh, and commit the lock files; or
  - accept: a line with the identifier and the reason in packaging/accepted-vulnerabilities.txt.
"""

Ask = Callable[[str, str], Any]


def pinned(text: str) -> list[tuple[str, str]]:
    """Names and versions of a lock file.

    >>> pinned("pyarrow==20.0.0 --hash=sha256:0")
    [('pyarrow', '20.0.0')]
    """
    return _PINNED.findall(text)


def ask(name: str, version: str) -> Any:
    """The index's answer about one version; raises OSError when it cannot be asked."""
    url = f"{os.environ.get('MEANDER_AUDIT_INDEX') or PyPI.pypi_url}/{name}/{version}/json"
    with urllib.request.urlopen(url, timeout=ASK_S) as response:
        return json.load(response)


class Vulnerability(NamedTuple):
    """A known one, and the versions without it."""

    name: str
    fixed_in: tuple[str, ...]


def vulnerabilities(
    packages: Iterable[tuple[str, str]], ask: Ask, clock: Callable[[], float] = time.monotonic
) -> tuple[dict[str, list[Vulnerability]], int]:
    """By package the vulnerabilities that are not withdrawn, and how many packages could not be asked about."""
    wanted = sorted(set(packages))
    found: dict[str, list[Vulnerability]] = {}
    unasked, until = 0, clock() + MOST_S

    def one(package: tuple[str, str]) -> Any:
        if clock() > until:
            return None
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
            listed = (v for v in said.get("vulnerabilities") or () if not v.get("withdrawn"))
            known = [Vulnerability(str(v["id"]), tuple(v.get("fixed_in") or ())) for v in listed]
            if known:
                found[f"{name}=={version}"] = known
    return found, unasked


def accepted(text: str) -> set[str]:
    """The first words of lines that are no comment."""
    return {line.split()[0] for line in text.splitlines() if line.strip() and not line.startswith("#")}


def main(locks: list[str], ask: Ask = ask) -> int:
    packages = [package for lock in locks or LOCKS for package in pinned((ROOT / lock).read_text(encoding="utf-8"))]
    found, unasked = vulnerabilities(packages, ask)
    known = accepted(ACCEPTED.read_text(encoding="utf-8"))
    bad = 0
    for package, each in found.items():
        for vulnerability in each:
            if vulnerability.name in known:
                continue
            bad += bool(vulnerability.fixed_in)
            remedy = f"fixed in {', '.join(vulnerability.fixed_in)}" if vulnerability.fixed_in else "not fixed yet"
            sys.stdout.write(f"audit: {package} has {vulnerability.name}; {remedy}\n")
    if bad:
        sys.stdout.write(ADVICE)
    if unasked:
        sys.stdout.write(f"audit: {unasked} of {len(set(packages))} packages could not be asked about; not checked\n")
    elif not found:
        sys.stdout.write(f"audit: {len(set(packages))} packages, no known vulnerability\n")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
