#!/bin/sh
# The one list of system packages; installs what is missing, says nothing when nothing is.
#
#   tools/install_deps.sh [run|test|bench|fuzz|check|release|browser|proxies]...     (default: run)
#
# As root, or where sudo asks no password, missing packages are installed with apt-get; otherwise
# the exact command is printed and the exit status is 1. On macOS that is the command of brew.
set -eu

run="g++ make cmake ninja-build pkg-config libfmt-dev nlohmann-json3-dev libpcre2-dev
  libutf8proc-dev liburing-dev libxxhash-dev libboost-dev libedit-dev
  libcurl4-openssl-dev"
# For chat templates (1.85) and constrained decoding (1.87).
# The distribution's plain rustc may be too old.
rust="rustc-web cargo-web"
# clang reads the Metal text and Objective-C++; with ccache pip's build has what the suite compiled.
# curl and jq are in commands of documents, zsh and fish load their completions.
test="libgtest-dev clang ccache python3 python3-dev python3-venv python3-numpy pybind11-dev curl jq
  zsh fish"
bench="libbenchmark-dev"
fuzz="clang libclang-rt-14-dev"
check="python3 clang clang-format-14 git"
# For packages, and tests of them in clean roots.
release="binutils mmdebstrap dpkg-dev lintian python3 python3-dev python3-numpy python3-venv
  pybind11-dev ruby systemd"
# For the tests of the page in a browser.
browser="chromium"
# For the tests of examples/replicas.
proxies="nginx"
# The page is built where Node.js is.
node="nodejs npm"
# A distribution may not carry these versions any more; what needs them then skips with a reason.
optional="clang clang-format-14 libclang-rt-14-dev liburing-dev libboost-dev libedit-dev
  libcurl4-openssl-dev ccache
  python3-dev python3-venv python3-numpy pybind11-dev rustc-web cargo-web nodejs npm"
brew_run="cmake ninja pkgconf fmt nlohmann-json pcre2 utf8proc xxhash boost curl rust"
brew_test="googletest python3 numpy pybind11 node"
brew_bench="google-benchmark"

# A toolchain of at least 1.85 that is there already, as rustup's, is as good.
case $(PATH=$PATH:${HOME:-/root}/.cargo/bin cargo --version 2>/dev/null || true) in
  "cargo 1.8"[5-9].* | "cargo 1.9"[0-9].* | "cargo 1."[1-9][0-9][0-9]*) rust="" ;;
esac
run="$run $rust"
# So is Node.js of at least 18 with npm; npm of Debian does not go with that of others.
case $(command -v npm >/dev/null && node --version 2>/dev/null || true) in
  v1[89].* | v[2-9][0-9].*) node="" ;;
esac
test="$test $node"

wanted=""
brew_wanted=""
for set in "${@:-run}"; do
  case $set in
    run) wanted="$wanted $run"; brew_wanted="$brew_wanted $brew_run" ;;
    test) wanted="$wanted $run $test"; brew_wanted="$brew_wanted $brew_run $brew_test" ;;
    bench) wanted="$wanted $run $bench"; brew_wanted="$brew_wanted $brew_run $brew_bench" ;;
    fuzz) wanted="$wanted $run $fuzz" ;;
    check) wanted="$wanted $check" ;;
    release) wanted="$wanted $release $node" ;;
    browser) wanted="$wanted $browser" ;;
    proxies) wanted="$wanted $proxies" ;;
    *) echo "install_deps.sh: unknown set '$set', expected run, test, bench, fuzz, check," \
         "release, browser or proxies" >&2
       exit 2 ;;
  esac
done

if [ "$(uname -s)" = Darwin ]; then
  missing=""
  for formula in $brew_wanted; do
    # Looking at the folder takes a millisecond; `brew list` takes a second.
    [ -e "/opt/homebrew/opt/$formula" ] || [ -e "/usr/local/opt/$formula" ] ||
      missing="$missing $formula"
  done
  [ -z "$missing" ] && exit 0
  echo "moeflux needs packages that are missing here. Install them with:" >&2
  echo "  brew install$missing" >&2
  exit 1
fi

if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
  # Not Debian or Ubuntu: CMake will name whatever it does not find.
  for tool in cmake ninja; do
    if ! command -v $tool >/dev/null; then
      echo "moeflux needs $tool, and this system has no apt-get. Install the equivalents of:" >&2
      echo " " $wanted >&2
      exit 1
    fi
  done
  exit 0
fi

# shellcheck disable=SC2086  # the lists are words
installed=" $(dpkg-query -W -f '${db:Status-Status}:${Package} ' $wanted 2>/dev/null || true)"
missing=""
for package in $wanted; do
  case "$installed$missing " in
    *" installed:$package "* | *" $package "*) ;;
    *) missing="$missing $package" ;;
  esac
done
[ -z "$missing" ] && exit 0

if [ "$(id -u)" = 0 ]; then
  as_root=""
elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
  as_root="sudo -n"
else
  # An absent optional package only makes its own check be skipped.
  required=""
  for package in $missing; do
    case " $optional " in *" $package "*) ;; *) required="$required $package" ;; esac
  done
  [ -z "$required" ] && exit 0
  echo "moeflux needs packages that are missing here. Install them with:" >&2
  echo "  sudo apt-get update && sudo apt-get install -y --no-install-recommends$required" >&2
  exit 1
fi

echo "installing:$missing" >&2
log=$(mktemp)
trap 'rm -f "$log"' EXIT
apt() {
  # shellcheck disable=SC2086
  $as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=120 "$@" \
    >"$log" 2>&1
}
apt update || { cat "$log" >&2; echo "apt-get update failed; trying the lists at hand" >&2; }
available=""
for package in $missing; do
  case " $optional " in
    *" $package "*)
      # Captured, not piped: apt-cache would fail on the closed pipe.
      case $(apt-cache policy "$package" 2>/dev/null) in
        "" | *"Candidate: (none)"*)
          echo "install_deps.sh: $package is not packaged here; skipped" >&2
          continue ;;
      esac ;;
  esac
  available="$available $package"
done
[ -z "$available" ] && exit 0
# shellcheck disable=SC2086
apt install -y --no-install-recommends $available || {
  cat "$log" >&2
  echo "install_deps.sh: apt-get install$available failed" >&2
  exit 1
}
