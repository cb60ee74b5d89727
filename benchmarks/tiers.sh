#!/bin/bash
# Measures a GPU with a model that is larger than its memory, on one machine, in one go:
#
#   benchmarks/tiers.sh BIN OUT [STEP]...     (default: all of them, in the order below)
#
# BIN holds moeflux and golden_test of a build with -DMOEFLUX_CUDA=ON. Logs go to OUT, with
# raw-*.json for benchmarks/results/raw. A step that fails or takes too long stops no other. SCRATCH
# (/tmp) takes one synthetic model at a time, 18 GiB, 26 for the slice; each is deleted behind its
# last step, unless KEEP is set.
#
#   bits      wherever experts lie, the bits of resident ones: golden tests and draws on GPUs
#   grid      near caches x plans, Qwen3.6-35B-A3B, uniform routes
#   prompts   the same model, near cache of 4 GiB, prompts of 512 and 4096 tokens
#   small     the GPU as one of 8, 4 and 3 GiB: bits of the logits, speed
#   q16       the same model on the CPU: q16 beside int8, in turn
#   natural   Qwen3-30B-A3B by the recorded routes in TRACE; left out without it
#   slice     7 layers of DeepSeek-V3, a tenth of their experts near
#   cards     several GPUs beside one, CARDS: bits, prompts, depths, what `plan` says of each
#   cards_v3  the same of the slice, whose experts each GPU has a share of
#   kl        the embedded model: perplexity and KL divergence of q16 and int8
#   peer      ik_llama.cpp's llama-bench at PEER beside ours, on one GGUF file; left out without it
#   peer_cards  the same on the GPUs of PEER_CARDS, which hold it: our splits beside PEER_SPLITS
#
# DEVICE (cuda:0), REPETITIONS (4), TOKENS (64), PROMPTS (512,4096), LAYERS (all). EXPERTS (the size
# of all, as --expert-cache has it) says that the host's memory holds them, where the system tells
# of less memory than there will be. To try the script out in a minute:
#
#   DEVICE=emulator,memory=64 SHAPE=tiny NEAR=100K,200K NEAR_USUAL=100K SLICE_NEAR=100K TOKENS=2 \
#     REPETITIONS=1 PROMPTS=8,16 SMALL=16 CHUNKS=1 SLICE_LAYERS=4 BITS='ReplanTest*' \
#     CARDS='emulator:0,memory=64 emulator:0,memory=64+emulator:1,memory=32' DEPTHS=0,16 \
#     benchmarks/tiers.sh BIN OUT
set -u
here=$(dirname "$0")
bin=$1 out=$2
shift 2
steps=${*:-bits grid prompts small q16 natural cards slice cards_v3 kl peer peer_cards}
device=${DEVICE:-cuda:0}
scratch=${SCRATCH:-/tmp}
layers=${LAYERS:-0}
tokens=${TOKENS:-64}
repetitions=${REPETITIONS:-4}
prompts=${PROMPTS:-512,4096}
near=${NEAR:-1G,2G,4G,8G,16G}
near_usual=${NEAR_USUAL:-4G}
text=${TEXT:-$here/../tests/golden/text/northanger-abbey.txt}
mkdir -p "$out"

# limit_of STEP: seconds that it may take.
limit_of() {
  case $1 in
    bits) echo "${BITS_SECONDS:-150}" ;;
    grid | cards* | peer*) echo "${LONG_SECONDS:-200}" ;;
    *) echo "${SHORT_SECONDS:-120}" ;;
  esac
}

# model_of STEP: the folder of its model; models are made by the first step that has them.
model_of() {
  case $1 in
    grid | prompts | small | q16 | cards) echo "$scratch/moeflux-35b" ;;
    natural) echo "$scratch/moeflux-30b" ;;
    slice | cards_v3) echo "$scratch/moeflux-v3" ;;
    peer*) echo "$scratch/moeflux-gguf" ;;
  esac
}

# synthesize SHAPE FOLDER LAYERS [OPTION]...
synthesize() {
  local shape=$1 folder=$2 count=$3
  shift 3
  shape=${SHAPE:-$shape}
  [ -e "$folder/done" ] && return
  mkdir -p "$folder"
  "$bin/moeflux" synth --like "$shape" --layers "$count" -o "$folder/model$suffix" --force "$@" \
    >"$out/synth.log" 2>&1 || { tail -3 "$out/synth.log"; return 1; }
  touch "$folder/done"
  echo "synth $shape: $SECONDS s, $(du -sh "$folder" | cut -f1)"
}

# measure NAME MODEL [OPTION]...: moeflux bench, its table and its raw output.
measure() {
  local name=$1 folder=$2
  shift 2
  local options=(--expert-io pread --reader-threads 16 -o json "$@")
  [ -n "${EXPERTS:-}" ] && options+=(--expert-cache "$EXPERTS")
  "$bin/moeflux" bench -m "$folder" "${options[@]}" >"$out/$name.json" 2>"$out/$name.log" || {
    echo "$name: failed"
    tail -3 "$out/$name.log"
    return 1
  }
  grep '^left out' "$out/$name.log"
  python3 "$here/tiers_report.py" bench "$out/$name.json"
  python3 "$here/raw_results.py" "$out/$name.json" "$out/raw-$name.json" --moeflux "$bin/moeflux" \
    --title "$name" --command "bench -m ${folder##*/} ${options[*]}"
}

step_bits() {
  seq 0 15 | MOEFLUX_TEST_TIERED_DEVICE=${TEST_DEVICE:-cuda:0} GTEST_TOTAL_SHARDS=16 \
    xargs -P "${JOBS:-8}" -I{} sh -c \
    'GTEST_SHARD_INDEX={} "$1" --gtest_filter="$2" >"$3.{}" 2>&1 || echo "shard {} ended with $?"' \
    sh "$bin/golden_test" "${BITS:-*Tiered*cuda*:*TieredDraws*}" "$out/bits"
  cat "$out"/bits.[0-9]* >"$out/bits.log"
  rm -f "$out"/bits.[0-9]*
  echo "bits: $(grep -c '\[       OK \]' "$out/bits.log") passed, $(
    grep '\[  FAILED  \].* ms)' "$out/bits.log" | sort -u | wc -l) failed, $(
    grep -c '\[  SKIPPED \].* ms)' "$out/bits.log") skipped"
  grep '\[  FAILED  \].* ms)' "$out/bits.log" | sort -u | head -20
}

synthesize_35b() { suffix='' synthesize qwen3.6-35b-a3b "$scratch/moeflux-35b" "$layers"; }

step_grid() {
  synthesize_35b || return
  measure grid "$scratch/moeflux-35b/model" --device "$device" --near-cache "$near" \
    --plan "${PLANS:-auto,resident,near,helper,shared}" -p 0 -n "$tokens" -r "$repetitions"
}

step_prompts() {
  synthesize_35b || return
  measure prompts "$scratch/moeflux-35b/model" --device "$device" --near-cache "$near_usual" \
    --plan auto -p "$prompts" -n 0 -r 2
}

# logits_on DEVICE FILE [OPTION]...
logits_on() {
  local on=$1 file=$2
  shift 2
  [ -n "${EXPERTS:-}" ] && set -- --expert-cache "$EXPERTS" "$@"
  "$bin/moeflux" logits -m "$scratch/moeflux-35b/model" --device "$on" --tokens "$(seq -s, 1 300)" \
    --expert-io pread --reader-threads 16 -c 4096 -o "$file" "$@" 2>"$out/logits.log" || {
    echo "logits on $on: failed"
    tail -2 "$out/logits.log"
    return 1
  }
}

step_small() {
  synthesize_35b || return
  logits_on "$device" "$scratch/whole.safetensors" --near-cache "$near_usual" || return
  for mib in ${SMALL:-8192 4096 3072}; do
    local small=${device%%,*},memory=$mib
    logits_on "$small" "$scratch/small.safetensors" || continue
    python3 "$here/tiers_report.py" same "$scratch"/{whole,small}.safetensors &&
      echo "$small: the same logits"
    measure "small-$mib" "$scratch/moeflux-35b/model" --device "$small" --plan auto,near \
      -c 4096 -p "${prompts%%,*}" -n "$tokens" -r 2
    grep "keeps" "$out/small-$mib.log"
  done
  rm -f "$scratch/whole.safetensors" "$scratch/small.safetensors"
}

step_q16() {
  synthesize_35b || return
  local order=0
  for count in ${THREADS:-16 2}; do
    local n=$((count > 4 ? 512 : 64))
    for precision in ${PRECISIONS:-int8 q16 q16 int8}; do
      order=$((order + 1))
      measure "q16-$count-$order-$precision" "$scratch/moeflux-35b/model" --device cpu -t "$count" \
        --precision "$precision" -p "$n" -n $((n / 16)) -r 2
    done
  done
}

step_natural() {
  [ -n "${TRACE:-}" ] || { echo 'natural: left out, TRACE is not set'; return; }
  suffix='' synthesize qwen3-30b-a3b "$scratch/moeflux-30b" "$layers" || return
  measure natural "$scratch/moeflux-30b/model" --device "$device" --near-cache "$near_usual" \
    --plan auto,near,helper,shared --routes "$TRACE" -p 0 -n "${TRACE_TOKENS:-120}" \
    -r "$repetitions"
}

step_slice() {
  suffix='' synthesize deepseek-v3 "$scratch/moeflux-v3" "${SLICE_LAYERS:-7}" || return
  EXPERTS=${SLICE_EXPERTS:-${EXPERTS:-}} measure slice "$scratch/moeflux-v3/model" \
    --device "$device" --near-cache "${SLICE_NEAR:-2600M}" --plan auto,near,helper,shared \
    -p 0 -n $((tokens / 2)) -r "$repetitions"
}

# One, two and four GPUs that hold the model, the first as one of 8 GiB, and beside it one of 3 GiB.
cards=${CARDS:-cuda:0 cuda:0+cuda:1 cuda:0+cuda:1+cuda:2+cuda:3 cuda:0,memory=8192 \
  cuda:0,memory=8192+cuda:1,memory=3072}

# measure_cards NAME MODEL: a row for each of CARDS and each depth.
measure_cards() {
  local name=$1 model=$2 number=0
  for on in $cards; do
    number=$((number + 1))
    echo "-- $on"
    "$bin/moeflux" plan -m "$model" --device "$on" --drive 3 >"$out/plan-$name-$number.txt" 2>&1 &&
      grep -E '^  GPU |^  natural|^  of [0-9]' "$out/plan-$name-$number.txt"
    measure "$name-$number" "$model" --device "$on" -p "$prompts" -n "$tokens" \
      -d "${DEPTHS:-0,8192,65536}" -r 2
  done
}

step_cards() {
  synthesize_35b || return
  local whole=''
  for on in $cards; do
    local file=$scratch/${whole:+other}.safetensors
    logits_on "$on" "$file" || continue
    [ -z "$whole" ] && { whole=$file; continue; }
    python3 "$here/tiers_report.py" same "$whole" "$file" && echo "$on: the same logits"
  done
  rm -f "$scratch"/{,other}.safetensors
  measure_cards cards "$scratch/moeflux-35b/model"
}

step_cards_v3() {
  suffix='' synthesize deepseek-v3 "$scratch/moeflux-v3" "${SLICE_LAYERS:-7}" || return
  EXPERTS=${SLICE_EXPERTS:-${EXPERTS:-}} measure_cards cards-v3 "$scratch/moeflux-v3/model"
}

step_kl() {
  for precision in q16 int8; do
    "$bin/moeflux" perplexity --device cpu --precision $precision -f "$text" --compare cpu \
      --chunks "${CHUNKS:-20}" >"$out/kl-$precision.txt" 2>&1
    sed "s/^/$precision: /" "$out/kl-$precision.txt"
  done
}

# peer_run NAME [OPTION]...
peer_run() {
  local name=$1
  shift
  "$PEER" -m "$scratch/moeflux-gguf/model.gguf" -ngl 99 -fa 1 -fmoe 1 -t "$(nproc)" \
    -p "$prompts" -n "$tokens" -b 4096 -ub 4096 -r 2 -o json "$@" \
    >"$out/$name.json" 2>"$out/$name.log" || {
    echo "$name: failed"
    tail -3 "$out/$name.log"
    return 1
  }
  python3 "$here/tiers_report.py" peer "$out/$name.json"
}

# FAR_LAYERS are those whose experts stay on the CPU: the first ten of forty are 4.2 GiB.
# PEER_ROUNDS (2).
step_peer() {
  [ -x "${PEER:-}" ] || { echo 'peer: left out, PEER is no program'; return; }
  suffix=.gguf synthesize qwen3.6-35b-a3b "$scratch/moeflux-gguf" "$layers" \
    --gguf "${TYPE:-Q4_0}" || return
  local far=${FAR_LAYERS:-'[1-3][0-9]'}
  for round in $(seq "${PEER_ROUNDS:-2}"); do
    measure "peer-$round-ours" "$scratch/moeflux-gguf/model.gguf" --device "$device" \
      --near-cache "$near_usual" --plan auto -p "$prompts" -n "$tokens" -r 2
    peer_run "peer-$round-cpu" -ot 'exps=CPU'
    peer_run "peer-$round-layers" -ot "blk\.$far\.ffn_.*_exps=CPU"
  done
}

step_peer_cards() {
  [ -x "${PEER:-}" ] || { echo 'peer_cards: left out, PEER is no program'; return; }
  suffix=.gguf synthesize qwen3.6-35b-a3b "$scratch/moeflux-gguf" "$layers" \
    --gguf "${TYPE:-Q4_0}" || return
  for round in 1 2; do
    for split in layers experts; do
      echo "-- $split"
      measure "peer-cards-$round-$split" "$scratch/moeflux-gguf/model.gguf" \
        --device "${PEER_CARDS:-cuda:0+cuda:1}" --split "$split" -p "$prompts" -n "$tokens" -r 2
    done
    for split in ${PEER_SPLITS:-layer graph}; do
      peer_run "peer-cards-$round-peer-$split" -sm "$split"
    done
  done
}

# A step by itself is this program again, so that its limit ends all it has begun.
case $steps in
  one:*)
    "step_${steps#one:}"
    exit
    ;;
esac
nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader 2>/dev/null
grep -m1 'model name' /proc/cpuinfo
begin=$SECONDS
made=''
for step in $steps; do
  printf '\n== %s (%s s)\n' "$step" "$SECONDS"
  model=$(model_of "$step")
  # A model whose last step is over makes room for the next.
  if [ -n "$made" ] && [ -n "$model" ] && [ "$made" != "$model" ] && [ -z "${KEEP:-}" ]; then
    rm -rf "$made"
  fi
  [ -n "$model" ] && made=$model
  at=$SECONDS
  timeout -k 5 "$(limit_of "$step")" bash "$0" "$bin" "$out" "one:$step"
  echo "== $step: status $? after $((SECONDS - at)) s"
done
[ -n "$made" ] && [ -z "${KEEP:-}" ] && rm -rf "$made"
echo "== done: $((SECONDS - begin)) s"
