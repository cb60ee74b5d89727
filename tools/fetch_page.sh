#!/bin/sh
# Fetches the npm packages of web/package-lock.json, those versions and no others, into
# web/node_modules; with --tests also those of its tests, a browser's driver among them. Does
# nothing where all are there; fails without Node.js 18 or newer.
set -eu
cd "$(dirname "$0")/../web"
case $(node --version 2>/dev/null || true) in
  v1[89].* | v[2-9][0-9].*) ;;
  *) echo "fetch_page.sh: no Node.js of at least 18" >&2; exit 1 ;;
esac
command -v npm >/dev/null || { echo "fetch_page.sh: no npm" >&2; exit 1; }
omit="--omit=dev"
[ "${1:-}" = --tests ] && omit=""
# The file is written last; it is newer than the lock file where all came.
mark=node_modules/.page${omit:+-no-tests}
[ -e node_modules/.page ] && [ node_modules/.page -nt package-lock.json ] && exit 0
[ -e "$mark" ] && [ "$mark" -nt package-lock.json ] && exit 0
# shellcheck disable=SC2086  # an option or nothing
npm ci $omit --ignore-scripts --no-audit --no-fund --loglevel=error >/dev/null
touch "$mark"
