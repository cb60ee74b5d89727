#!/bin/sh
# The installed program runs from any folder, whose name may have a space, and finds its embedded
# model.
#
#   install_test.sh CMAKE BUILD_FOLDER
set -eu

cmake=$1
build=$2
prefix=$(mktemp -d)
trap 'rm -rf "$prefix"' EXIT

fail() {
  echo "install_test: $1" >&2
  exit 1
}

"$cmake" --install "$build" --prefix "$prefix/first place" >"$prefix/install.log" 2>&1 || {
  cat "$prefix/install.log" >&2
  fail "cmake --install failed"
}
# Moved after installation: a prefix compiled into the program would not be found.
mv "$prefix/first place" "$prefix/second place"
moeflux="$prefix/second place/bin/moeflux"
[ -x "$moeflux" ] || fail "no bin/moeflux below the prefix"
model="$prefix/second place"/share/moeflux/models/fable-20m
[ -f "$model/model.safetensors" ] || fail "no share/moeflux/models/fable-20m below the prefix"

for page in man/man1/moeflux.1 man/man1/moeflux-run.1 bash-completion/completions/moeflux \
  zsh/site-functions/_moeflux fish/vendor_completions.d/moeflux.fish; do
  [ -s "$prefix/second place/share/$page" ] || fail "no share/$page below the prefix"
done

mkdir "$prefix/elsewhere"
cd "$prefix/elsewhere"

version=$("$moeflux" --version) || fail "--version exited with $?"
case $version in
  *[0-9].[0-9]*) ;;
  *) fail "--version printed '$version', expected a version number" ;;
esac

story=$("$moeflux" run -n 4 --temp 0 "Once upon a time") || fail "run exited with $?"
[ -n "$story" ] || fail "run printed nothing"
PATH="$prefix/second place/bin:$PATH"
again=$(cd / && moeflux run -n 4 --temp 0 "Once upon a time") ||
  fail "run through PATH exited with $?"
[ "$story" = "$again" ] || fail "run through PATH printed '$again', expected '$story'"
[ -z "$(ls -A)" ] || fail "run left files in the working folder: $(ls -A)"
echo "install_test: $version, '$story'"
