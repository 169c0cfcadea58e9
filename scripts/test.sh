#!/usr/bin/env bash
# Runs all tests but chaos. Those that share the Spark session and those that need none run at the same time, as either
# kind alone leaves a core idle. Each says which of its tests took longest. With arguments, pytest runs once, with them.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
pytest=(.venv/bin/python -m pytest)

if (($# > 0)); then
    exec "${pytest[@]}" "$@"
fi

output=$(mktemp)
trap 'rm -f "$output"' EXIT
"${pytest[@]}" -m "not spark and not chaos" -p no:cacheprovider --durations=25 >"$output" 2>&1 &
others=$!
status=0
"${pytest[@]}" -m spark --durations=25 || status=$?
wait "$others" || status=$?
cat "$output"
exit "$status"
