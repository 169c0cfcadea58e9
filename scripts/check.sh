#!/usr/bin/env bash
# The short loop: style, types, contracts, and the tests without Spark that find most mistakes.
#
#   scripts/check.sh                           in about two minutes on two cores
#   scripts/check.sh meander/run/store         what a change there needs: all tests of that room, with Spark if they use it
#   scripts/check.sh meander/place/engine.py   the tests of one module
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# Quick tests of rooms whose mistakes show everywhere else.
MOST=(tests/model tests/lang tests/place tests/deploy tests/adapt tests/run/store tests/coordinator/condition
    tests/coordinator/ledger tests/coordinator/loop/test_faults.py tests/cli/test_main.py)

# The tests of a module or a room: tests mirror the tree.
tests_of() {
    local path=${1%/}
    case $path in
        tests/*) echo "$path" && return ;;
        meander/*) path=tests/${path#meander/} ;;
        lab/*) path=tests/$path ;;
        *)
            printf 'check: %s is no module or room; name one such as meander/run/store or meander/place/engine.py\n' "$1" >&2
            return 2
            ;;
    esac
    if [[ $path == *.py ]]; then
        local own
        own=$(dirname "$path")/test_$(basename "$path")
        [[ -e $own ]] && echo "$own" && return
        path=$(dirname "$path")
    fi
    while [[ ! -d $path ]]; do path=$(dirname "$path"); done
    echo "$path"
}

chosen=()
for name in "$@"; do
    found=$(tests_of "$name")
    chosen+=("$found")
done

.venv/bin/ruff check .
.venv/bin/ruff format --check .
.venv/bin/lint-imports >/dev/null || .venv/bin/lint-imports
if (($# > 0)); then
    .venv/bin/mypy
    exec .venv/bin/python -m pytest -q -m "not chaos" "${chosen[@]}"
fi
.venv/bin/mypy &
types=$!
status=0
.venv/bin/python -m pytest -q -m "not spark and not slow and not chaos" "${MOST[@]}" || status=$?
wait "$types" || status=$?
exit "$status"
