#!/bin/sh
# Brings Ray Serve and LiteLLM from PyPI into build/ray, a gigabyte, for the tests of replicas, with
# the interpreter that the release build's package is for.
set -eu
cd "$(dirname "$0")/.."

if build/ray/bin/python -c 'import ray, numpy, litellm, jsonschema' 2>/dev/null; then exit 0; fi
python=$(sed -n 's/^MOEFLUX_PYTHON_PROGRAM:INTERNAL=//p' build/release/CMakeCache.txt)
"${python:-python3}" -m venv build/ray
requirement=$(sed -n 's/^ray = \["\(.*\)"\]$/\1/p' pyproject.toml)
build/ray/bin/pip install --quiet --disable-pip-version-check numpy jsonschema "$requirement" \
  'litellm[proxy]'
