#!/bin/sh
# Known vulnerabilities of what is installed: asks the package index about every pinned version, or those named as
# arguments. Ends with 1 if one has a vulnerability that is not listed in packaging/accepted-vulnerabilities.txt, and
# with 0 if the index cannot be reached: a build must not depend on it.
#
#   scripts/audit.sh [requirements.lock ...]
set -eu
cd "$(dirname "$0")/.."
exec "${PYTHON:-.venv/bin/python}" scripts/audit.py "$@"
