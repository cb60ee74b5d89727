#!/bin/sh
# Brings what `pip install .` builds the Python package with from PyPI into build/python-wheels,
# half a megabyte, so that the test of it needs no network.
set -eu
cd "$(dirname "$0")/.."

folder=build/python-wheels
if ls $folder/scikit_build_core-*.whl $folder/pybind11-*.whl >/dev/null 2>&1; then
  exit 0
fi
mkdir -p $folder
python3 -m venv $folder/venv
# The requirements of pyproject.toml, and theirs.
requires=$(sed -n 's/^requires = \[\(.*\)\]$/\1/p' pyproject.toml | tr -d '",')
# shellcheck disable=SC2086  # the requirements are words
$folder/venv/bin/pip download --quiet --disable-pip-version-check --dest $folder $requires
rm -rf $folder/venv
