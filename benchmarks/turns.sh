#!/bin/bash
# An agent's two turns: seconds to the first token of a long prompt, and of a second turn with TURN
# (2000) new tokens behind it, with all experts on the GPU and with a part of them.
#
#   turns.sh BIN OUT [SHAPE:TYPE:LAYERS:PROMPT:NEAR]...
#
# BIN has moeflux. LAYERS (0: all) cuts a model, and NEAR is what the GPU has for its experts in the
# second row of each. SCRATCH (/tmp) takes one model at a time, 10 to 21 GB by default. DEVICE
# (cuda:0), REPETITIONS (1). The prompt comes before the turn in the same process, so that a turn
# finds kernels and graphs; the prompt finds none. To try the script out in a minute:
#
#   DEVICE=emulator,memory=64 TURN=4 benchmarks/turns.sh BIN OUT tiny:Q8_0:2:16:200K
set -u
bin=$1 out=$2
shift 2
# 8 GiB for the whole models; qwen3-30b-a3b has 40,960 positions.
rows=${*:-qwen3.6-35b-a3b:Q4_K:20:60000:4G gpt-oss-120b:MXFP4:12:60000:2731M \
  qwen3-30b-a3b:Q4_0:24:38000:4G}
scratch=${SCRATCH:-/tmp}
mkdir -p "$out"

# seconds FILE: of each test in it, the median repetition.
seconds() {
  python3 - "$1" <<'P'
import json, statistics, sys
try:
    tests = json.load(open(sys.argv[1]))
    print(" ".join(f"{statistics.median(test['samples_ns']) / 1e9:.3f}" for test in tests))
except (OSError, ValueError):
    print("failed")
P
}

# measure NAME MODEL PROMPT [OPTION]...
measure() {
  local name=$1 model=$2 prompt=$3
  shift 3
  local common=(-m "$model" --device "${DEVICE:-cuda:0}" -n 0 -r "${REPETITIONS:-1}" --no-warmup
    -o json "$@")
  "$bin/moeflux" bench "${common[@]}" -p "$prompt" >"$out/$name-first.json" 2>"$out/$name.log"
  "$bin/moeflux" bench "${common[@]}" -p "${TURN:-2000}" -d "$prompt" >"$out/$name-second.json" \
    2>>"$out/$name.log"
  echo "| $name | $prompt | $(seconds "$out/$name-first.json") |" \
    "$(seconds "$out/$name-second.json") |"
}

echo "| model, layers, GPU memory for experts | prompt | first token, s |" \
  "of ${TURN:-2000} more, s |"
for row in $rows; do
  IFS=: read -r shape type layers prompt near <<<"$row"
  model=$scratch/turns-$shape.gguf
  "$bin/moeflux" synth --like "$shape" --gguf "$type" --layers "$layers" -o "$model" --force \
    >"$out/synth.log" 2>&1 || { tail -3 "$out/synth.log"; continue; }
  measure "$shape-$layers-all" "$model" "$prompt"
  measure "$shape-$layers-$near" "$model" "$prompt" --near-cache "$near"
  rm -f "$model"
done
