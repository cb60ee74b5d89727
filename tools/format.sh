#!/bin/sh
# Checks that every C++ file is formatted; `tools/format.sh --fix` formats them.
#
# Versions of clang-format differ in what they do with the same style, so it is 14 or nothing: where
# it is missing the check is skipped and says so.
set -eu
cd "$(dirname "$0")/.."

clang_format=""
for candidate in clang-format-14 clang-format; do
  if command -v $candidate >/dev/null && $candidate --version | grep -q 'version 14\.'; then
    clang_format=$candidate
    break
  fi
done
if [ -z "$clang_format" ]; then
  echo "format: skipped, clang-format 14 is not installed (tools/install_deps.sh check)"
  exit 0
fi

list_files() {
  if git rev-parse --is-inside-work-tree >/dev/null 2>&1; then
    git ls-files -z --cached --others --exclude-standard -- '*.h' '*.hpp' '*.cc'
  else
    find include src tests benchmarks fuzz examples python \
      \( -name '*.h' -o -name '*.hpp' -o -name '*.cc' \) -print0
  fi
}

if [ "${1:-}" = --fix ]; then
  list_files | xargs -0 $clang_format -i
  exit 0
fi
jobs=$(getconf _NPROCESSORS_ONLN)
if list_files | xargs -0 -n 16 -P "$jobs" $clang_format --dry-run -Werror; then
  echo "format: clean"
else
  echo "format: the files above differ, run 'make format'" >&2
  exit 1
fi
