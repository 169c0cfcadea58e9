#!/bin/sh
# Known vulnerabilities of what is installed: asks the package index about every pinned version, or those named as
# arguments. Ends with 1 if one has a vulnerability that a newer version has not, and that is not listed in
# packaging/accepted-vulnerabilities.txt; it says then what can be done. Ends with 0 if there is nothing to update to, and
# if the index cannot be reached or takes longer than a minute: a build must not depend on it.
#
#   scripts/audit.sh [requirements.lock ...]
set -eu
cd "$(dirname "$0")/.."
exec "${PYTHON:-.venv/bin/python}" scripts/audit.py "$@"
