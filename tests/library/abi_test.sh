#!/bin/sh
# The shared library exports what abi_symbols.txt lists: nothing is lost, and nothing of the inside
# gets out. A new function is a new line; a line that goes breaks programs.
#
#   abi_test.sh LIBRARY
set -eu
list=$(dirname "$0")/abi_symbols.txt
found=$(mktemp)
trap 'rm -f "$found"' EXIT
if [ "$(uname -s)" = Darwin ]; then
  nm -gU "$1" | awk '{ sub(/^_/, "", $NF); print $NF }' | LC_ALL=C sort >"$found"
else
  nm -D --defined-only "$1" | awk '{ print $NF }' | LC_ALL=C sort >"$found"
fi
diff "$list" "$found" >&2 || {
  echo "abi_test: exported symbols differ from $list: < only listed, > only exported" >&2
  exit 1
}
echo "abi_test: $(wc -l <"$list") symbols"
