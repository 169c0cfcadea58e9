#!/bin/sh
# Looks for a Chromium for the tests of the page, and installs one where that is possible: from Debian's packages as root,
# else playwright's own. Never fails and never asks: without a browser these tests are skipped and say why.
#
#   scripts/browser.sh            once; what did not work is not tried again
#   scripts/browser.sh --again    try again
set -u
cd "$(dirname "$0")/.."

TRIED=.venv/.no-browser
LIMIT_S=240

[ "${1:-}" = "--again" ] && rm -f "$TRIED"
[ -e "$TRIED" ] && exit 0
[ -n "${MEANDER_CHROMIUM:-}" ] && exit 0
for name in chromium chromium-browser google-chrome google-chrome-stable; do
    command -v "$name" >/dev/null 2>&1 && exit 0
done

launches() {
    .venv/bin/python - >/dev/null 2>&1 <<'PYTHON'
from playwright.sync_api import sync_playwright

with sync_playwright() as tools:
    tools.chromium.launch(args=["--no-sandbox"]).close()
PYTHON
}

limited() {
    if command -v timeout >/dev/null 2>&1; then timeout "$LIMIT_S" "$@"; else "$@"; fi </dev/null >/dev/null 2>&1
}

launches && exit 0
echo "setup: no Chromium found: installing one for the tests of the page"
if [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null 2>&1; then
    export DEBIAN_FRONTEND=noninteractive
    limited apt-get install -qq -y --no-install-recommends chromium && exit 0
    limited apt-get update -qq && limited apt-get install -qq -y --no-install-recommends chromium && exit 0
fi
limited .venv/bin/python -m playwright install --only-shell chromium && launches && exit 0
echo "setup: that did not work; the tests of the page are skipped. Install Chromium, then scripts/browser.sh --again"
touch "$TRIED"
exit 0
