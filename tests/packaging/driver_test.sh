#!/bin/sh
# A program with CUDA computes on the CPU where there is no NVIDIA driver and where it is too old,
# and says which of the two in one line.
#
#   driver_test.sh PROGRAM COMPILER
#
# The driver is a library with three functions, which knows CUDA 12.8, or no version at all.
set -eu
program=$1
cc=$2
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cat >"$folder/driver.c" <<'END_OF_C'
#include <string.h>
int cuInit(unsigned flags) { return flags ? 1 : 0; }
int cuDriverGetVersion(int* version) {
  *version = VERSION;
  return 0;
}
int cuGetProcAddress_v2(const char* name, void** to, int version, unsigned long long flags,
                        int* found) {
  *to = 0;
  if (strcmp(name, "cuInit") == 0) *to = (void*)cuInit;
  if (strcmp(name, "cuDriverGetVersion") == 0) *to = (void*)cuDriverGetVersion;
  if (strcmp(name, "cuGetProcAddress") == 0) *to = (void*)cuGetProcAddress_v2;
  (void)version, (void)flags;
  if (found) *found = *to == 0;
  return *to ? 0 : 500;  // CUDA_ERROR_NOT_FOUND
}
END_OF_C

# expect VERSION WORDS
expect() {
  "$cc" -x c -shared -fPIC -DVERSION="$1" "$folder/driver.c" -o "$folder/libcuda.so.1"
  LD_LIBRARY_PATH=$folder "$program" run -n 4 --temp 0 "Once upon a time" \
    >"$folder/story" 2>"$folder/words" || {
    cat "$folder/words" >&2
    exit 1
  }
  if [ ! -s "$folder/story" ] ||
    [ "$(grep -c 'device auto: cpu, cuda:0: ' "$folder/words")" != 1 ] ||
    ! grep -q "$2" "$folder/words"; then
    echo "driver_test: version $1 gives the text below, expected a story and one line '$2'" >&2
    cat "$folder/story" "$folder/words" >&2
    exit 1
  fi
}
expect 0 "no NVIDIA driver"
expect 12080 "the NVIDIA driver has CUDA 12.8, this build needs"
echo "driver_test: the CPU tells the story, $(grep -o 'the NVIDIA driver.*' "$folder/words")"
