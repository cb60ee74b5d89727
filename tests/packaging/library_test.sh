#!/bin/sh
# The installed library serves programs in C and C++, through CMake and pkg-config, shared and
# static, wherever the prefix has been moved: here into a folder whose name has a space.
#
#   library_test.sh CMAKE BUILD_FOLDER SOURCE_FOLDER CXX
set -eu
cmake=$1
build=$2
source=$3
cxx=$4
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

fail() {
  echo "library_test: $1" >&2
  exit 1
}

# logged NAME COMMAND...: its output is shown when it fails.
logged() {
  log=$folder/$1.log
  shift
  "$@" >"$log" 2>&1 || {
    cat "$log" >&2
    fail "failed: $*"
  }
}

logged install "$cmake" --install "$build" --prefix "$folder/installed"
mv "$folder/installed" "$folder/a prefix"
prefix="$folder/a prefix"
model=$prefix/share/moeflux/models/fable-20m
pc=$(find "$prefix" -name moeflux.pc)
[ -n "$pc" ] || fail "no moeflux.pc below the prefix"
PKG_CONFIG_PATH=$(dirname "$pc")${PKG_CONFIG_PATH:+:$PKG_CONFIG_PATH}
export PKG_CONFIG_PATH

# The program's text for the same prompt, seed and length.
story=$("$prefix/bin/moeflux" run -q -n 40 -s 7 "Once upon a time")

template='{% for m in messages %}{{ m.content }} {% endfor %}Once'

# says_story WHAT PROGRAM: the C example's text is the program's.
says_story() {
  text=$("$2" "$model" "Once upon a time") || fail "$1: exited with $?"
  [ "$text" = "$story" ] || fail "$1: printed '$text', expected '$story'"
}

for linkage in shared static; do
  case $linkage in
    shared) option=OFF package=moeflux ;;
    *) option=ON package=moeflux-static ;;
  esac
  logged "cmake-$linkage" "$cmake" -S "$source/examples" -B "$folder/$linkage" \
    -DCMAKE_PREFIX_PATH="$prefix" -DMOEFLUX_STATIC=$option -DCMAKE_CXX_COMPILER="$cxx" \
    -DCMAKE_BUILD_TYPE=Debug
  logged "build-$linkage" "$cmake" --build "$folder/$linkage"
  says_story "CMake, $linkage" "$folder/$linkage/complete"
  "$folder/$linkage/branches" "$model" "Once upon a time" >"$folder/endings" 2>"$folder/log" ||
    fail "branches ($linkage): $(cat "$folder/log")"
  endings=$(grep -c '^[123]: ' "$folder/endings" || true)
  [ "$endings" = 3 ] || fail "branches ($linkage) printed $endings endings, expected 3"

  # A conversation's first answer is the same from C and C++, and its second comes.
  for program in chat chat_cpp; do
    set -- "$template" "Tell me" "More"
    [ "$program" = chat_cpp ] || set -- "Tell me" "$template"
    "$folder/$linkage/$program" "$model" "$@" >"$folder/$program-answers" 2>"$folder/log" ||
      fail "$program ($linkage): $(cat "$folder/log")"
  done
  first=$(cat "$folder/chat-answers")
  [ -n "$first" ] || fail "chat ($linkage) printed nothing"
  case $(cat "$folder/chat_cpp-answers") in
    "$first"?*) ;;
    *) fail "chat_cpp ($linkage) printed '$(cat "$folder/chat_cpp-answers")', expected '$first'" ;;
  esac

  answer=$("$folder/$linkage/serve" "$model" /v1/completions \
    '{"prompt": "Once upon a time", "max_tokens": 3}' 2>"$folder/log") ||
    fail "serve ($linkage): $(cat "$folder/log")"
  case $answer in
    '{"id":"cmpl-'*'"completion_tokens":3'*) ;;
    *) fail "serve ($linkage) printed '$answer', $(cat "$folder/log")" ;;
  esac

  # pkg-config quotes the space for a shell.
  eval "set -- $(pkg-config --cflags --libs "$package")"
  logged "pkg-config-$linkage" "$cxx" -x c++ -std=c++20 "$source/examples/c/complete.c" -x none \
    "$@" -Wl,-rpath,"$(dirname "$pc")/.." -o "$folder/$linkage/complete-pc"
  says_story "pkg-config, $linkage" "$folder/$linkage/complete-pc"
done

# A C++ program that names no standard gets the one that moeflux.hpp needs.
mkdir "$folder/plain"
cat >"$folder/plain/CMakeLists.txt" <<'END'
cmake_minimum_required(VERSION 3.22)
project(plain LANGUAGES CXX)
find_package(moeflux REQUIRED COMPONENTS static)
foreach(linkage moeflux static)
  add_executable(plain_${linkage} plain.cc)
  target_link_libraries(plain_${linkage} PRIVATE moeflux::${linkage})
endforeach()
END
cat >"$folder/plain/plain.cc" <<'END'
#include <moeflux/moeflux.hpp>
static_assert(__cplusplus >= 202002L);
int main() { return moeflux::Model::open("/nonexistent").ok() ? 1 : 0; }
END
logged cmake-plain "$cmake" -S "$folder/plain" -B "$folder/plain/build" \
  -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_CXX_COMPILER="$cxx" -DCMAKE_CXX_FLAGS=-std=c++17 \
  -DCMAKE_BUILD_TYPE=Debug
logged build-plain "$cmake" --build "$folder/plain/build"
for linkage in moeflux static; do
  "$folder/plain/build/plain_$linkage" || fail "plain_$linkage opened a model that is not there"
done

# A failure of the library reaches the program's user.
if "$folder/shared/complete" "$folder/missing" x 2>"$folder/error"; then
  fail "complete succeeded without a model"
fi
grep -q "not found: .*missing: no such folder" "$folder/error" ||
  fail "complete said '$(cat "$folder/error")'"
echo "library_test: shared and static, CMake and pkg-config: '$story'"
