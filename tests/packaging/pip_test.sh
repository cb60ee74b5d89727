#!/bin/sh
# `pip install .` into a fresh environment gives the program and a package that passes its tests
# and runs the tour on the model of an installed tree. Without network: tools/install_python.sh
# brought the wheels.
#
#   pip_test.sh PYTHON CMAKE BUILD_FOLDER SOURCE_FOLDER [DEFINITION=VALUE]...
#
# The wheel holds the extension and the program of BUILD_FOLDER. With MOEFLUX_TEST_PIP_COMPILES in
# the environment pip compiles its own, by the definitions, as it does for a user; that build stays
# in BUILD_FOLDER-pip.
set -eu
python=$1
cmake=$2
build=$3
source=$4
shift 4
wheels=$source/build/python-wheels
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

# logged NAME COMMAND...: its output is shown when it fails.
logged() {
  log=$folder/$1.log
  shift
  "$@" >"$log" 2>&1 || {
    cat "$log" >&2
    echo "pip_test: failed: $*" >&2
    exit 1
  }
}

if ! ls "$wheels"/scikit_build_core-*.whl >/dev/null 2>&1; then
  echo "skipped: no wheels in $wheels (tools/install_python.sh)"
  exit 0
fi
# NumPy comes from the interpreter's own packages, as the only thing that has to be compiled for it.
logged venv "$python" -m venv --system-site-packages "$folder/venv"
if [ -z "${MOEFLUX_TEST_PIP_COMPILES:-}" ]; then
  set -- "MOEFLUX_PREBUILT=$build"
fi
for definition; do
  set -- "$@" "--config-settings=cmake.define.$definition"
  shift
done
# With CI set scikit-build-core waits 20 seconds and not 5 for cmake and ninja. Where it waits in
# vain, it asks for wheels of them.
logged pip env CI=1 PIP_NO_INDEX=1 PIP_FIND_LINKS="$wheels" PIP_DISABLE_PIP_VERSION_CHECK=1 \
  "$folder/venv/bin/pip" install \
  --config-settings=build-dir="$build-pip${MOEFLUX_TEST_PIP_COMPILES:+-compiled}" "$@" "$source"

cd "$folder"
unset PYTHONPATH
where=$(venv/bin/python -c 'import moeflux; print(moeflux.__file__)')
case $where in
  "$folder"/venv/*) ;;
  *) echo "pip_test: import moeflux found $where, expected it below $folder/venv" >&2; exit 1 ;;
esac
# The program comes with it, its model inside, and is what from_pretrained() runs.
set -- run -q -n 10 -s 7 "Once upon a time"
expected=$("$build/bin/moeflux" "$@")
story=$(env -i PATH="$folder/venv/bin" HOME="$folder" moeflux "$@")
if [ -z "$story" ] || [ "$story" != "$expected" ]; then
  echo "pip_test: the program on the PATH printed '$story', expected '$expected'" >&2
  exit 1
fi
story=$(venv/bin/python -m moeflux "$@")
if [ "$story" != "$expected" ]; then
  echo "pip_test: python -m moeflux printed '$story', expected '$expected'" >&2
  exit 1
fi
where=$(venv/bin/python -c 'from moeflux import _program; print(_program.path())')
if [ "$(realpath "$where")" != "$(realpath venv/bin/moeflux)" ]; then
  echo "pip_test: the package's program is $where, expected it below $folder/venv" >&2
  exit 1
fi
logged package venv/bin/python "$source/tests/python/package_test.py"
logged install "$cmake" --install "$build" --prefix "$folder/prefix"
logged tour venv/bin/python "$source/examples/python/tour.py" prefix/share/moeflux/models/fable-20m
echo "pip_test: $(venv/bin/pip list 2>/dev/null | grep '^moeflux'), $(grep '^Ran' package.log)"
