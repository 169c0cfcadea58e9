#!/bin/sh
# Builds the page: meander/api/page/src becomes meander/api/page/dist. The built files are committed, so that running
# Meander needs no Node; this script is for those who change the page. Needs Node 20 or newer with npm.
#
#   scripts/page.sh    install the build tools at their locked versions, check the types, build
set -eu
cd "$(dirname "$0")/../meander/api/page"

command -v npm >/dev/null 2>&1 || {
    echo "page: npm is missing; install Node 20 or newer, then run this again." >&2
    exit 2
}
npm ci --silent
npm run --silent check
npm run --silent build
echo "page: built dist/ ($(du -sk dist | cut -f1) kB); commit it together with src/"
