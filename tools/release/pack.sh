#!/bin/sh
# Packs what `make release` built into build/packages: archives, Debian packages, wheels, and for
# them an SBOM, licences and checksums. The same build gives the same bytes.
#
#   tools/release/pack.sh [BUILD_FOLDER [OUT]]       (default: build/package build/packages)
#
# OUT is emptied first. Where BUILD_FOLDER-arm64 has a program, its archive is made too.
set -eu
cd "$(dirname "$0")/../.."
source=$PWD
build=$(realpath "${1:-build/package}")
out=$(realpath "${2:-build/packages}")
version=$(sed -n 's/^project(moeflux VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)
minor=${version%.*}  # the library's number, as cmake/library.cmake has it
maintainer=${MOEFLUX_MAINTAINER:-$(git log -1 --format='%an <%ae>')}
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH
glibc_max=2.31
umask 022

fail() {
  echo "pack.sh: $1" >&2
  exit 1
}

rm -rf "$out"
mkdir -p "$out"

# setting NAME BUILD_FOLDER: what the build was configured with.
setting() {
  sed -n "s/^$1:[A-Z]*=//p" "$2/CMakeCache.txt"
}

# check_needs FILE...: each asks for the C library alone, at most for the version above.
check_needs() {
  for file; do
    newest=$(readelf --wide --dyn-syms "$file" | grep -o 'GLIBC_[0-9.]*' | cut -d _ -f 2 |
      sort -V | tail -n 1)
    [ -n "$newest" ] || fail "$file names no symbols of glibc"
    [ "$(printf '%s\n' "$newest" $glibc_max | sort -V | tail -n 1)" = $glibc_max ] ||
      fail "$file needs glibc $newest, expected at most $glibc_max"
    strange=$(readelf -d "$file" | sed -n 's/.*NEEDED.*\[\(.*\)\]/\1/p' |
      grep -Ev '^(lib(c|m|dl|pthread|rt)\.so\.[0-9]|ld-linux-(x86-64|aarch64)\.so\.[12])$' || true)
    [ -z "$strange" ] || fail "$file needs $strange, expected the C library alone"
  done
}

# archive BUILD_FOLDER ARCHITECTURE MACHINE ROOT: leaves what it packs in $tree.
archive() {
  name=moeflux-$version-linux-$3
  tree=$out/$name
  cmake --install "$1" --prefix "$tree" --strip >"$out/install.log" || fail "see $out/install.log"
  rm "$out/install.log"
  doc=$tree/share/doc/moeflux
  mkdir -p "$doc"
  cp LICENSE README.md CHANGELOG.md "$doc"
  cp -r docs examples "$doc"
  find "$doc" -name __pycache__ -prune -exec rm -r {} +
  runtime=""
  [ "$(setting MOEFLUX_CUDA "$1")" != ON ] || runtime=$(setting MOEFLUX_CUDA_RUNTIME "$1")
  tools/release/inventory.py --version "$version" --architecture "$2" --root "$4" \
    ${runtime:+--cuda "$runtime"} --sbom "$doc/sbom.cdx.json" --licences "$doc/THIRD-PARTY.txt"
  mkdir -p "$tree/lib/systemd/system"
  cp tools/release/moeflux.service "$tree/lib/systemd/system"
  check_needs "$tree/bin/moeflux" "$tree/lib/libmoeflux.so.$version"
  # No trace of this machine and time.
  tar -C "$out" --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner \
    -cf - "$name" | gzip -9n >"$out/$name.tar.gz"
}

if [ -x "$build-arm64/bin/moeflux" ]; then
  archive "$build-arm64" arm64 aarch64 build/release-root-arm64
  rm -rf "$tree"
fi
archive "$build" amd64 x86_64 build/release-root
cp "$doc/sbom.cdx.json" "$out/moeflux-$version.cdx.json"
ls "$build"/python/moeflux/_core*.so >/dev/null || fail "no python/moeflux/_core*.so in $build"
check_needs "$build"/python/moeflux/_core*.so "$build"/python-others/_core*.so

# Files of the tree are shared out among packages, below /usr.
work=$out/debian
# files_into PACKAGE PATH...: moves paths of the tree below /usr of a package.
files_into() {
  package=$1
  shift
  for path; do
    mkdir -p "$work/$package/usr/$(dirname "$path")"
    mv "$tree/$path" "$work/$package/usr/$path"
  done
}
library=libmoeflux$minor
mkdir -p "$tree/share/zsh/vendor-completions"
mv "$tree/share/zsh/site-functions/_moeflux" "$tree/share/zsh/vendor-completions"
gzip -9n "$tree"/share/man/man1/*.1
(
  cd "$tree"
  for file in lib/libmoeflux.so.*; do files_into "$library" "$file"; done
  files_into libmoeflux-dev include lib/libmoeflux.so lib/pkgconfig lib/cmake
  files_into moeflux bin lib/systemd share/man share/bash-completion share/zsh/vendor-completions \
    share/fish share/moeflux
)
# Found for this architecture alone, as lintian asks.
dev=$work/libmoeflux-dev/usr/lib
mkdir "$dev/x86_64-linux-gnu"
mv "$dev/pkgconfig" "$dev/x86_64-linux-gnu"
sed -i 's/^prefix=.*/prefix=\/usr/' "$dev/x86_64-linux-gnu/pkgconfig/moeflux.pc"
mkdir -p "$work/moeflux/usr/share/lintian/overrides"
cat >"$work/moeflux/usr/share/lintian/overrides/moeflux" <<'END'
# Linked into the program, so that one package serves all Debian since 11.
moeflux: embedded-library ncurses *
END
cat >"$work/changelog" <<END
moeflux ($version) unstable; urgency=medium

  * Release $version; CHANGELOG.md lists the changes.

 -- $maintainer  $(date -u -R -d "@$SOURCE_DATE_EPOCH")
END
gzip -9n "$work/changelog"
cat >"$work/copyright" <<END
Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: moeflux
Comment: The program and the library contain other software, compiled; THIRD-PARTY.txt.gz beside
 this file has its licences.

Files: *
Copyright: $(date -u +%Y -d "@$SOURCE_DATE_EPOCH") the authors of moeflux
License: Apache-2.0
 On Debian systems the text of this licence is in /usr/share/common-licenses/Apache-2.0.
END

# package NAME SECTION DEPENDS SUMMARY: the long description is read from standard input.
package() {
  root=$work/$1
  notes=$root/usr/share/doc/$1
  mkdir -p "$notes" "$root/DEBIAN"
  cp "$work/changelog.gz" "$work/copyright" "$notes"
  [ "$1" = libmoeflux-dev ] || gzip -9nc "$doc/THIRD-PARTY.txt" >"$notes/THIRD-PARTY.txt.gz"
  (cd "$root" && find usr -type f -print0 | sort -z | xargs -0 md5sum) >"$root/DEBIAN/md5sums"
  {
    echo "Package: $1"
    echo "Source: moeflux"
    echo "Version: $version"
    echo "Architecture: amd64"
    echo "Maintainer: $maintainer"
    echo "Section: $2"
    echo "Priority: optional"
    echo "Installed-Size: $(du -sk "$root/usr" | cut -f 1)"
    echo "Depends: $3"
    [ "$1" != moeflux ] || echo "Recommends: libcurl4, ca-certificates"
    echo "Description: $4"
    sed 's/^/ /'
  } >"$root/DEBIAN/control"
  chmod -R u=rwX,go=rX "$root"
  find "$root" -depth -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
  file=$out/${1}_${version}_amd64.deb
  dpkg-deb --root-owner-group -Zxz --build "$root" "$file" >"$out/log" 2>&1 ||
    fail "$(cat "$out/log")"
}

mkdir -p "$work/$library/DEBIAN"
echo "libmoeflux $minor $library (>= $version)" >"$work/$library/DEBIAN/shlibs"
echo "activate-noawait ldconfig" >"$work/$library/DEBIAN/triggers"
package moeflux utils "libc6 (>= $glibc_max)" "runs Mixture-of-Experts language models" <<'END'
moeflux runs language models, also those that are larger than memory: it
streams the experts of a layer from the drive and keeps those used most. The
program completes text, chats in the terminal, and serves HTTP clients of
OpenAI, Anthropic and Ollama. A small model is included.
END
package "$library" libs "libc6 (>= $glibc_max)" "language models in a program: the library" <<'END'
libmoeflux runs language models within a program. This package has the shared
library, whose interface is C; libmoeflux-dev has the headers.
END
package libmoeflux-dev libdevel "$library (= $version)" \
  "language models in a program: headers" <<'END'
libmoeflux runs language models within a program. This package has headers for
C and C++, a CMake package and a pkg-config file. The static library is built
from the sources.
END
rm -rf "$work" "$tree" "$out/log"

# A wheel holds the extension that was built, for that interpreter; others differ in that alone.
if ls build/python-wheels/scikit_build_core-*.whl >/dev/null 2>&1; then
  python=$(setting MOEFLUX_PYTHON_PROGRAM "$build")
  "$python" -m venv "$out/venv"
  # install.strip leaves alone what pip did not build.
  mkdir -p "$out/stripped/bin" "$out/stripped/python/moeflux" "$out/others"
  for file in bin/moeflux "$(cd "$build" && ls python/moeflux/_core*.so)"; do
    strip --strip-unneeded -o "$out/stripped/$file" "$build/$file"
  done
  PIP_NO_INDEX=1 PIP_FIND_LINKS=$source/build/python-wheels PIP_DISABLE_PIP_VERSION_CHECK=1 \
    "$out/venv/bin/pip" wheel --quiet --no-deps --wheel-dir "$out" \
    --config-settings=build-dir="$out/wheel" \
    --config-settings=cmake.define.MOEFLUX_PREBUILT="$out/stripped" \
    --config-settings=wheel.platlib=true .
  rm -rf "$out/venv" "$out/wheel" "$out/stripped"
  # The tag of a system with that glibc: the extension needs nothing else, as was checked above.
  platform=manylinux_$(echo $glibc_max | tr . _)_x86_64
  wheel=$(ls "$out"/moeflux-*-linux_x86_64.whl)
  for extension in "$build"/python-others/_core*.so; do
    stripped=$out/others/$(basename "$extension")
    strip --strip-unneeded -o "$stripped" "$extension"
    python3 tools/release/retag.py "$wheel" "$platform" "$stripped"
  done
  rm -rf "$out/others"
  python3 tools/release/retag.py "$wheel" "$platform"
  rm "$wheel"
else
  echo "pack.sh: no wheel: tools/install_python.sh brings what builds it" >&2
fi

cp tools/release/install.sh tools/release/Containerfile "$out"
cd "$out"
sum=$(sha256sum "$name.tar.gz")
sed -e "s/@VERSION@/$version/" -e "s/@SHA256@/${sum%% *}/" \
  "$source/tools/release/moeflux.rb" >moeflux.rb
sums=$(sha256sum -- *)
echo "$sums" >SHA256SUMS
ls -l
