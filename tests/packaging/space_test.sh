#!/bin/sh
# A build in a folder whose name has a space: what joins archives to the static library works there,
# for several of them.
#
#   space_test.sh CMAKE SOURCE_FOLDER CXX
set -eu
cmake=$1
source=$2
cxx=$3
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
project="$folder/a folder"
mkdir "$project"
cat >"$project/CMakeLists.txt" <<'END'
cmake_minimum_required(VERSION 3.22)
project(space LANGUAGES CXX)
include(${MOEFLUX_SOURCE}/cmake/add_archive.cmake)
add_library(outer STATIC outer.cc)
foreach(name inner other)
  add_library(${name} STATIC ${name}.cc)
  add_dependencies(outer ${name})
  moeflux_add_archive(outer ${CMAKE_CURRENT_BINARY_DIR}/lib${name}.a)
endforeach()
add_executable(both main.cc)
target_link_libraries(both PRIVATE outer)
END
echo 'int inner() { return 3; }' >"$project/inner.cc"
echo 'int other() { return 4; }' >"$project/other.cc"
echo 'int inner(), other(); int outer() { return other() * inner(); }' >"$project/outer.cc"
echo 'int outer(); int main() { return outer() == 12 ? 0 : 1; }' >"$project/main.cc"

# logged COMMAND...: its output is shown when it fails.
logged() {
  "$@" >"$folder/log" 2>&1 || {
    cat "$folder/log" >&2
    exit 1
  }
}

logged "$cmake" -S "$project" -B "$project/build" -DCMAKE_CXX_COMPILER="$cxx" \
  -DMOEFLUX_SOURCE="$source"
logged "$cmake" --build "$project/build"
"$project/build/both"
echo "space_test: archives were joined in '$project'"
