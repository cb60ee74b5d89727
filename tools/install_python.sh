#!/bin/sh
# Brings wheels from PyPI so that tests need no network: those that `pip install .` builds the
# Python package with into build/python-wheels, half a megabyte, and huggingface_hub, with which
# moeflux pull is compared, into build/hub-wheels, 7 MB. The site is written by mkdocs, 6 MB in
# build/site-wheels. mypy, 92 MB in build/mypy, checks the package's types.
set -eu
cd "$(dirname "$0")/.."

hub=build/hub-wheels
if ! ls $hub/huggingface_hub-*.whl >/dev/null 2>&1; then
  mkdir -p $hub
  python3 -m venv $hub/venv
  $hub/venv/bin/pip download --quiet --disable-pip-version-check --dest $hub huggingface_hub
  rm -rf $hub/venv
fi

site=build/site-wheels
if ! ls $site/mkdocs-*.whl >/dev/null 2>&1; then
  mkdir -p $site
  python3 -m venv $site/venv
  $site/venv/bin/pip download --quiet --disable-pip-version-check --dest $site mkdocs==1.6.1
  rm -rf $site/venv
fi

folder=build/python-wheels
if ! ls $folder/scikit_build_core-*.whl $folder/pybind11-*.whl >/dev/null 2>&1; then
  mkdir -p $folder
  python3 -m venv $folder/venv
  # The requirements of pyproject.toml, and theirs.
  requires=$(sed -n 's/^requires = \[\(.*\)\]$/\1/p' pyproject.toml | tr -d '",')
  # shellcheck disable=SC2086  # the requirements are words
  $folder/venv/bin/pip download --quiet --disable-pip-version-check --dest $folder $requires
  rm -rf $folder/venv
fi

types=build/mypy
if ! [ -x $types/bin/mypy ]; then
  python3 -m venv $types
  $types/bin/pip install --quiet --disable-pip-version-check mypy==2.4.1
fi
