#!/bin/sh
# Renews the three lock files from pyproject.toml: every package pinned, with the hashes of all its wheels, so
# that one file serves every platform and every supported Python. Needs `uv` on the PATH. Review the diff, then
# `make test`.
#
#   scripts/lock.sh            keep the pins that still fit
#   scripts/lock.sh --upgrade  take the newest versions
set -eu
cd "$(dirname "$0")/.."

compile() {
    out=$1
    shift
    uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --fork-strategy fewest \
        --no-emit-index-url --no-emit-find-links --no-annotate --no-header "$@" --output-file "$out"
    echo "wrote $out"
}

# What the program and its tests import.
compile requirements.lock pyproject.toml --extra dev "$@"

# What installs the above and builds this package; agrees with requirements.lock.
compile requirements-build.lock requirements-build.in --constraint requirements.lock "$@"

# A Java runtime from PyPI, for machines that have none.
compile requirements-java.lock requirements-java.in "$@"
