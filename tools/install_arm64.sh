#!/bin/sh
# Brings what cross-building for 64-bit Arm needs: Debian's compiler and emulator, and the libraries
# of that architecture unpacked into build/arm64-root, so that this system stays what it is.
#
#   tools/install_arm64.sh [rust]     (Debian or Ubuntu; the compiler and the emulator need root)
#
# `rust`: Rust's library for that architecture as well, by rustup; fails where there is none.
set -eu
cd "$(dirname "$0")/.."
PATH=$PATH:${HOME:-/root}/.cargo/bin

if [ "${1:-}" = rust ]; then
  target=aarch64-unknown-linux-gnu
  libraries=$(rustc --print target-libdir --target $target 2>/dev/null || true)
  if ! ls "$libraries"/libcore-*.rlib >/dev/null 2>&1; then
    command -v rustup >/dev/null || {
      echo "install_arm64.sh: no library of Rust for $target, and no rustup to add it" >&2
      exit 1
    }
    rustup --quiet target add $target
  fi
fi

if ! command -v aarch64-linux-gnu-g++ >/dev/null || ! command -v qemu-aarch64 >/dev/null; then
  [ "$(id -u)" = 0 ] || {
    echo "run: sudo apt-get install -y g++-aarch64-linux-gnu qemu-user" >&2
    exit 1
  }
  apt-get -qq update
  DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends \
    g++-aarch64-linux-gnu qemu-user >/dev/null
fi
root=$PWD/build/arm64-root
[ -e "$root/complete" ] && exit 0
# The system's sources with lists of their own. libgtest is a static library in its dev package.
mkdir -p "$root/lists/partial" "$root/cache/archives/partial" "$root/packages"
arm64() {
  apt-get -qq -o APT::Architecture=arm64 -o APT::Architectures=arm64 \
    -o Dir::State::Lists="$root/lists" -o Dir::Cache="$root/cache" -o APT::Sandbox::User=root "$@"
}
arm64 update
soname=$(apt-cache -o APT::Architecture=arm64 -o APT::Architectures=arm64 \
  -o Dir::State::Lists="$root/lists" depends libfmt-dev |
  sed -n 's/.*Depends: \(libfmt[0-9]*\).*/\1/p')
(cd "$root/packages" && arm64 download "$soname" libfmt-dev libgtest-dev libpcre2-8-0 libpcre2-dev \
  libutf8proc2 libutf8proc-dev libxxhash-dev nlohmann-json3-dev)
for package in "$root"/packages/*.deb; do
  dpkg -x "$package" "$root"
done
rm -rf "$root/lists" "$root/cache" "$root/packages"
touch "$root/complete"
