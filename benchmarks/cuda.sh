#!/bin/bash
# Everything worth knowing about the CUDA backend on one machine, in one go:
#
#   benchmarks/cuda.sh BIN OUT [STEP]...     (default: all of them, in the order below)
#
# BIN holds moeflux, conformance_test and golden_test of a build with -DMOEFLUX_CUDA=ON; logs go to
# OUT, with raw-*.json for benchmarks/results/raw. SCRATCH (default /tmp) takes the synthetic model,
# 18 GiB. A failing step stops no other.
#
# Tests run as SHARDS processes (48), JOBS of them at once (8). CHECKED limits memcheck and
# racecheck to some tests, CHECK_SECONDS (600) each process: one takes racecheck 340 s on an H200.
#
# Steps of a slice of DeepSeek-V3 (the first LAYERS of it: 8, of which 5 have experts, are 32 GiB of
# files) come when they are named: deepseek-synth deepseek-bench deepseek-profile.
#
# Steps of the same model as a GGUF file of one type (TYPE: Q4_K) come when they are named as well:
# gguf-synth gguf-bench gguf-profile. Named with bench and profile they compare both in one run.
#
# several comes when it is named: steps of STREAMS (1,8,32,64,128) sequences of synth's model, at
# DEPTHS (0,4096). BEFORE holds the programs of a build from before a change: then both take turns,
# A B B A.
#
# DEVICE (cuda:0) is what models run on. Most people's GPUs make their kernels of a build's PTX,
# have 99 KiB of shared memory for a group and a few dozen multiprocessors. A larger one does as
# they do with a build for -DMOEFLUX_CUDA_ARCHITECTURES=80 and
#
#   DEVICE=cuda:0,shared=99 benchmarks/cuda.sh build/cuda80/bin OUT
#
# (multiprocessors=24 besides, to see plans for so few). conformance and golden run as such a GPU
# in any build, beside the one there is.
set -u
here=$(dirname "$0")
bin=$1 out=$2
shift 2
steps=${*:-device conformance golden memcheck racecheck synth bench profile}
model=${SCRATCH:-/tmp}/moeflux-synthetic
slice=${SCRATCH:-/tmp}/moeflux-deepseek-slice
type=${TYPE:-Q4_K}
gguf=${SCRATCH:-/tmp}/moeflux-gguf-$type
device=${DEVICE:-cuda:0}
shards=${SHARDS:-48}
jobs=${JOBS:-8}
mkdir -p "$out"

has() { case " $steps " in *" $1 "*) ;; *) return 1 ;; esac; }
say() { printf '\n== %s (%s s)\n' "$1" "$SECONDS"; }

# in_shards NAME COMMAND...: a gtest program as $shards processes, $jobs at once; one log, and its
# totals.
in_shards() {
  local name=$1
  shift
  seq 0 $((shards - 1)) | GTEST_TOTAL_SHARDS=$shards xargs -P "$jobs" -I{} sh -c \
    'log=$1; shift; GTEST_SHARD_INDEX={} "$@" >"$log.{}" 2>&1 || echo "shard {} ended with $?"' \
    sh "$out/$name" "$@"
  cat "$out/$name".[0-9]* >"$out/$name.log"
  rm -f "$out/$name".[0-9]*
  grep -E 'ERROR SUMMARY|RACECHECK SUMMARY' "$out/$name.log" | sort | uniq -c
  echo "$name: $(grep -c '\[       OK \]' "$out/$name.log") passed, $(
    grep '\[  FAILED  \].* ms)' "$out/$name.log" | sort -u | wc -l) failed, $(
    grep -c '\[  SKIPPED \].* ms)' "$out/$name.log") skipped"
  grep '\[  FAILED  \].* ms)' "$out/$name.log" | sort -u | head -20
}

if has device; then
  say device
  nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader
  ldd --version | head -1
  ldd "$bin/moeflux" | grep 'not found'
  # The driver makes kernels of PTX once, and keeps them for the processes below.
  MOEFLUX_TEST_DEVICES=cuda "$bin/conformance_test" --gtest_filter='Copy*' >"$out/first.log" 2>&1
  tail -1 "$out/first.log"
  say 'kernels are there'
fi
# synthesize NAME FOLDER LOG [OPTION]...
synthesize() {
  local name=$1 folder=$2 log=$3
  shift 3
  "$bin/moeflux" synth --like "$name" -o "$folder" --force "$@" >"$out/$log.log" 2>&1
  tail -1 "$out/$log.log"
}

# measure FOLDER LOG PROMPTS
measure() {
  local options=(--device "$device" -p "$3" -n 64 -d "${DEPTHS:-0,8192}" -r "${REPETITIONS:-3}"
    --reader-threads 16 -o json)
  "$bin/moeflux" bench -m "$1" "${options[@]}" >"$out/$2.json" 2>"$out/$2.log" ||
    tail -3 "$out/$2.log"
  python3 "$here/cuda_report.py" bench "$out/$2.json"
  python3 "$here/raw_results.py" "$out/$2.json" "$out/raw-$2.json" --moeflux "$bin/moeflux" \
    --title "$2" --command "bench -m ${1##*/} ${options[*]}"
}

# profile FOLDER LOG: launches of decoded tokens, after those of loading and of warming up.
profile() {
  timeout "${PROFILE_SECONDS:-200}" ncu --clock-control none --csv \
    --metrics gpu__time_duration.sum \
    --launch-skip "${SKIP:-4000}" --launch-count "${COUNT:-2000}" \
    "$bin/moeflux" bench -m "$1" --device "$device" -p 0 -n "${TOKENS:-8}" -r 1 \
    --reader-threads 16 >"$out/$2.csv" 2>"$out/$2.log"
  python3 "$here/cuda_report.py" profile "$out/$2.csv"
}

if has synth; then
  say synth
  synthesize qwen3.6-35b-a3b "$model" synth
fi
if has conformance; then
  say conformance
  MOEFLUX_TEST_DEVICES=cuda in_shards conformance "$bin/conformance_test"
fi
if has golden; then
  say golden
  in_shards golden "$bin/golden_test" \
    --gtest_filter='*cuda_0*'
fi
if has memcheck; then
  say memcheck
  MOEFLUX_TEST_DEVICES=cuda in_shards memcheck \
    timeout "${CHECK_SECONDS:-600}" compute-sanitizer --tool memcheck \
    "$bin/conformance_test" --gtest_filter="${CHECKED:-*}"
fi
if has racecheck; then
  say racecheck
  MOEFLUX_TEST_DEVICES=cuda in_shards racecheck \
    timeout "${CHECK_SECONDS:-600}" compute-sanitizer --tool racecheck \
    "$bin/conformance_test" --gtest_filter="${CHECKED:-*}"
fi
if has bench; then
  say bench
  measure "$model" bench "${PROMPTS:-512,4096}"
fi
if has profile; then
  say profile
  profile "$model" profile
fi
# several BIN LOG: sequences in common steps.
several() {
  "$1/moeflux" bench -m "$model" --device "$device" -p 0 -n "${TOKENS:-32}" \
    -d "${DEPTHS:-0,4096}" --parallel "${STREAMS:-1,8,32,64,128}" -r 1 --reader-threads 16 -o json \
    >"$out/$2.json" 2>"$out/$2.log" || tail -3 "$out/$2.log"
  python3 "$here/cuda_report.py" bench "$out/$2.json"
}

if has several; then
  say several
  if [ -n "${BEFORE:-}" ]; then
    several "$BEFORE" several-before-1
    several "$bin" several-1
    several "$bin" several-2
    several "$BEFORE" several-before-2
  else
    several "$bin" several
  fi
fi
if has gguf-synth; then
  say gguf-synth
  synthesize qwen3.6-35b-a3b "$gguf" gguf-synth --gguf "$type"
fi
if has gguf-bench; then
  say gguf-bench
  measure "$gguf" "gguf-bench-$type" "${PROMPTS:-512,4096}"
fi
if has gguf-profile; then
  say gguf-profile
  profile "$gguf" "gguf-profile-$type"
fi
if has deepseek-synth; then
  say deepseek-synth
  synthesize deepseek-v3 "$slice" deepseek-synth --layers "${LAYERS:-8}"
fi
if has deepseek-bench; then
  say deepseek-bench
  measure "$slice" deepseek-bench "${PROMPTS:-512}"
fi
if has deepseek-profile; then
  say deepseek-profile
  SKIP=${SKIP:-600} COUNT=${COUNT:-800} profile "$slice" deepseek-profile
fi
say done
