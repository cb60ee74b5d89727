#!/bin/sh
# Downloads moeflux for this machine, verifies its checksum and installs it below PREFIX.
#
#   MOEFLUX_ADDRESS=https://... PREFIX=~/.local sh install.sh
#
# The address is the folder that holds the archive and SHA256SUMS. Everything is put into
# PREFIX/lib/moeflux, which appears whole or not at all; PREFIX/bin/moeflux, manual pages and
# completions are links into it. Removing these removes it.
set -eu

address=${MOEFLUX_ADDRESS:-}
address=${address%/}
prefix=${PREFIX:-${HOME:-}/.local}

fail() {
  echo "install.sh: $1" >&2
  exit 1
}

# fetch NAME FILE; https alone, but from this machine itself.
fetch() {
  case $address in
    https://* | http://127.0.0.1:* | http://localhost:*) ;;
    *) fail "the address is '$address', expected https://..." ;;
  esac
  if command -v curl >/dev/null; then
    curl --fail --silent --show-error --location --proto '=https,http' --proto-redir '=https' \
      --retry 2 --connect-timeout 30 --output "$2" "$address/$1"
  elif command -v wget >/dev/null; then
    wget --quiet --tries 3 --timeout 30 --output-document "$2" "$address/$1"
  else
    fail "neither curl nor wget is here, one of them has to be"
  fi || fail "cannot download $address/$1"
}

# The whole script is read before anything runs: a cut download of it does nothing.
main() {
  [ -n "$address" ] || fail "MOEFLUX_ADDRESS is not set, expected the address of a release"
  [ "$prefix" != /.local ] || fail "HOME and PREFIX are not set"
  system=$(uname -s)
  machine=$(uname -m)
  [ "$system" = Linux ] || fail "there are packages for Linux, this is $system"
  mkdir -p "$prefix/lib" "$prefix/bin" || fail "cannot write to $prefix"
  prefix=$(cd "$prefix" && pwd) || fail "cannot enter $prefix"  # links need the whole path
  # On the file system of the prefix, so that the last step is a rename.
  work=$(mktemp -d "$prefix/lib/.moeflux-XXXXXX") || fail "cannot write to $prefix/lib"
  trap 'rm -rf "$work"' EXIT
  trap 'exit 1' HUP INT TERM

  fetch SHA256SUMS "$work/SHA256SUMS"
  pattern="^[0-9a-f]{64}  moeflux-[0-9A-Za-z.]+-linux-$machine\.tar\.gz\$"
  line=$(grep -E "$pattern" "$work/SHA256SUMS") ||
    fail "$address/SHA256SUMS lists no archive for $machine"
  [ "$(echo "$line" | wc -l)" = 1 ] ||
    fail "$address/SHA256SUMS lists several archives for $machine"
  expected=${line%% *}
  archive=${line##* }
  echo "downloading $archive" >&2
  fetch "$archive" "$work/$archive"
  found=$(sha256sum "$work/$archive") || fail "sha256sum failed"
  found=${found%% *}
  [ "$found" = "$expected" ] ||
    fail "$archive has SHA-256 $found, expected $expected; nothing is installed"

  mkdir "$work/tree"
  tar -xzf "$work/$archive" -C "$work/tree" --strip-components 1 --no-same-owner ||
    fail "cannot unpack $archive"
  version=$("$work/tree/bin/moeflux" --version) ||
    fail "the program of $archive does not start here, it needs glibc 2.31 or newer"
  version=$(echo "$version" | head -n 1)

  if [ -e "$prefix/lib/moeflux" ]; then
    [ -f "$prefix/lib/moeflux/bin/moeflux" ] ||
      fail "$prefix/lib/moeflux is there and is not an installation of moeflux"
    mv "$prefix/lib/moeflux" "$work/old"
  fi
  mv "$work/tree" "$prefix/lib/moeflux"
  cd "$prefix/lib/moeflux"
  for file in bin/moeflux share/man/man1/* share/bash-completion/completions/* \
    share/zsh/site-functions/* share/fish/vendor_completions.d/*; do
    [ -f "$file" ] || continue
    mkdir -p "$prefix/${file%/*}"
    ln -sfn "$prefix/lib/moeflux/$file" "$prefix/$file"
  done
  echo "installed $version: $prefix/bin/moeflux" >&2
  case :$PATH: in
    *":$prefix/bin:"*) ;;
    *) echo "$prefix/bin is not in PATH" >&2 ;;
  esac
}

main
