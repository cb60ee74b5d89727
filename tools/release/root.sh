#!/bin/sh
# Unpacks into build/release-root what a release is compiled against: the C library of Debian 11
# (glibc 2.31) and static libraries of Debian 12. This system's g++ 12 compiles with that root, so
# the result starts on all systems since glibc 2.31. Changes nothing of this system.
#
#   tools/release/root.sh [amd64|arm64]    (on Debian 12 for x86-64; needs a network)
#
# The root of arm64 is build/release-root-arm64, for the cross compiler of tools/install_arm64.sh.
set -eu
cd "$(dirname "$0")/../.."
architecture=${1:-amd64}
case $architecture in
  amd64) root=$PWD/build/release-root triple=x86_64-linux-gnu tools="" ;;
  arm64) root=$PWD/build/release-root-arm64 triple=aarch64-linux-gnu tools=aarch64-linux-gnu- ;;
  *) echo "root.sh: no architecture $architecture, expected amd64 or arm64" >&2; exit 2 ;;
esac
stamp=$(cksum <tools/release/root.sh)
[ "$(cat "$root/complete" 2>/dev/null)" = "$stamp" ] && exit 0
rm -rf "$root"
mkdir -p "$root/apt/lists/partial" "$root/apt/archives/partial" "$root/packages"
key=/usr/share/keyrings/debian-archive-keyring.gpg
for suite in bullseye bookworm trixie forky; do
  for type in deb deb-src; do
    echo "$type [signed-by=$key] http://deb.debian.org/debian $suite main"
  done
done >"$root/apt/sources.list"
apt() {
  apt-get -qq -o APT::Architecture=$architecture -o APT::Architectures=$architecture \
    -o Dir::Etc::SourceList="$root/apt/sources.list" -o Dir::Etc::SourceParts=- \
    -o Dir::State::Lists="$root/apt/lists" -o Dir::Cache="$root/apt" -o APT::Sandbox::User=root "$@"
}
apt update
cd "$root/packages"
# libcurl's headers alone: the program opens the library at run time, so that it has its system's
# certificates and TLS. g++ 10's unwinder needs no function of glibc 2.35.
# Python's headers are those of Debian 11 to 14, and pybind11 the first that knows them all.
# gcc-*-base and libtinfo6 bring copyright files that others link to.
apt download libc6/bullseye libc6-dev/bullseye libcurl4-openssl-dev/bullseye \
  libgcc-10-dev/bullseye gcc-10-base/bullseye gcc-12-base/bookworm libtinfo6/bookworm \
  linux-libc-dev/bookworm libstdc++-12-dev/bookworm libfmt-dev/bookworm \
  nlohmann-json3-dev/bookworm libpcre2-dev/bookworm libutf8proc-dev/bookworm \
  libxxhash-dev/bookworm \
  libboost1.74-dev/bookworm liburing-dev/bookworm libedit-dev/bookworm libbsd-dev/bookworm \
  libmd-dev/bookworm libncurses-dev/bookworm libcrypt-dev/bullseye libpython3.9-dev/bullseye \
  libpython3.11-dev/bookworm libpython3.13-dev/trixie libpython3.14-dev/forky \
  pybind11-dev/forky
for package in *.deb; do
  dpkg -x "$package" "$root"
done
libraries=$root/usr/lib/$triple
# No Debian has CPython 3.10 and 3.12: their headers come from interpreters of this system, where it
# has them. Wheels are made for what is found.
if [ "$architecture" = amd64 ]; then
  for python in "${PYENV_ROOT:-${HOME:-/root}/.pyenv}"/versions/3.*/bin/python3; do
    [ -x "$python" ] || continue
    headers=$("$python" -c 'import sysconfig; print(sysconfig.get_path("include"))')
    case ${headers##*/} in
      python3.10 | python3.12) cp -r --no-preserve=mode "$headers" "$root/usr/include" ;;
    esac
  done
fi
# Absolute links would leave the root.
find "$root" -type l -lname '/*' | while read -r link; do
  ln -snfr "$root$(readlink "$link")" "$link"
done
mkdir "$root/lib/unwind"
cp "$root/usr/lib/gcc/$triple/10/libgcc_eh.a" "$root/lib/unwind"

# Debian has no static fmt, and no pcre2 that a shared library can hold.
cd "$root/packages"
apt source --download-only fmtlib/bookworm pcre2/bookworm
mkdir fmt pcre2
tar -xf fmtlib_*.orig.tar.* -C fmt --strip-components 1
tar -xf pcre2_*.orig.tar.* -C pcre2 --strip-components 1
flags="--sysroot=$root -O2 -fPIC -fstack-protector-strong -D_FORTIFY_SOURCE=2"
link=""
if [ -n "$tools" ]; then
  # As in cmake/release_arm64_toolchain.cmake.
  headers=$root/usr/include
  flags="$flags -nostdinc -isystem $(${tools}gcc -print-file-name=include)"
  flags="$flags -isystem $headers/$triple -isystem $headers"
  standard="-nostdinc++ -isystem /usr/$triple/include/c++/12 \
    -isystem /usr/$triple/include/c++/12/$triple"
  link="-B$libraries -L$root/lib/$triple -L$libraries"
fi
# shellcheck disable=SC2086  # the flags are words
${tools}g++ ${standard:-} $flags -std=c++20 -Ifmt/include -c fmt/src/format.cc -o format.o
rm -f "$libraries"/libfmt.so*
${tools}ar rcs "$libraries/libfmt.a" format.o
# The package describes its shared library; its targets are those of the static one.
sed -i 's/SHARED IMPORTED/STATIC IMPORTED/' "$libraries/cmake/fmt/fmt-targets.cmake"
sed -i -e '/IMPORTED_SONAME/d' -e 's/libfmt\.so[.0-9]*/libfmt.a/g' \
  "$libraries/cmake/fmt/fmt-targets-none.cmake"
mkdir pcre2-build
(cd pcre2-build && CC=${tools}gcc CFLAGS=$flags LDFLAGS=$link ../pcre2/configure --quiet \
  ${tools:+--host=$triple} --disable-shared --with-pic --enable-jit --enable-unicode >/dev/null &&
  make -s libpcre2-8.la >/dev/null 2>&1)
cp pcre2-build/.libs/libpcre2-8.a "$libraries"
# libedit with what it needs of others, as a script of the linker's.
mv "$libraries/libedit.a" "$libraries/libedit_alone.a"
echo "INPUT(libedit_alone.a libbsd.a libmd.a libtinfo.a)" >"$libraries/libedit.a"

# Symbols of newer C libraries that g++ 12's static libstdc++ asks for.
cat >libstdcxx.c <<'END'
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>
// 0: count references atomically, whether there is one thread or more.
__attribute__((visibility("hidden"))) char __libc_single_threaded;
__attribute__((visibility("hidden"))) uint32_t arc4random(void) {
  uint32_t bits;
  if (getentropy(&bits, sizeof(bits)) != 0) abort();
  return bits;
}
END
# shellcheck disable=SC2086
${tools}gcc $flags -c libstdcxx.c -o "$root/lib/libstdcxx.o"
# The SBOM lists the packages and versions that the program contains.
for package in ./*.deb; do
  dpkg-deb -W --showformat '${Package} ${Version} ${source:Package}\n' "$package"
done >"$root/versions"
cd "$root"
rm -rf packages apt
# Static libraries alone, so that nothing else is linked: all but the C library's are removed.
find "$libraries" -maxdepth 1 -name 'lib*.so*' | while read -r library; do
  case ${library##*/} in
    libc.so | libm.so | libmvec.so | libpthread.so | libdl.so | librt.so | libutil.so) ;;
    *) rm "$library" ;;
  esac
done
echo "$stamp" >"$root/complete"
