#!/bin/bash
# An agent's two turns: seconds to the first token of a long prompt, and of a second turn with TURN
# (2000) new tokens behind it, with all experts on the GPU and with a part of them.
#
#   turns.sh BIN OUT [SHAPE:TYPE:LAYERS:PROMPT:NEAR:FAR]...
#
# BIN has moeflux. LAYERS (0: all) cuts a model, and NEAR is what the GPU has for its experts in the
# second row of each. PEER may be a llama-sweep-bench: it takes steps of TURN tokens, and the prompt
# also in steps of twice as many, with all on the GPU, and with the experts of layers from FAR on in
# host memory. Prompts are whole numbers of steps. SCRATCH (/tmp) takes one model at a time, 10 to
# 21 GB by default. DEVICE (cuda:0), REPETITIONS (1). The prompt comes before the turn in the same
# process, so that a turn finds kernels and graphs; the prompt finds none. To try the script out in
# a minute:
#
#   DEVICE=emulator,memory=64 TURN=4 benchmarks/turns.sh BIN OUT tiny:Q8_0:2:16:200K
set -u
bin=$1 out=$2
shift 2
# 8 GiB for the whole models; qwen3-30b-a3b has 40,960 positions.
rows=${*:-qwen3.6-35b-a3b:Q4_K:20:60000:4G:9 gpt-oss-120b:MXFP4:12:60000:2731M:2 \
  qwen3-30b-a3b:Q4_0:24:36000:4G:12}
scratch=${SCRATCH:-/tmp}
turn=${TURN:-2000}
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
  "$bin/moeflux" bench "${common[@]}" -p "$turn" -d "$prompt" >"$out/$name-second.json" \
    2>>"$out/$name.log"
  echo "| $name | $prompt | $(seconds "$out/$name-first.json") |" \
    "$(seconds "$out/$name-second.json") |"
}

# peer_seconds STEP LOG: of the prompt in steps, and of the step behind it.
peer_seconds() {
  python3 - "$2" "$prompt" "$1" <<'P'
import json, sys
prompt, step = int(sys.argv[2]), int(sys.argv[3])
try:
    rows = [json.loads(line) for line in open(sys.argv[1]) if line.startswith("{")]
    seconds = {row["n_kv"]: row["t_pp"] for row in rows}
    first = sum(seconds[at] for at in range(0, prompt, step))
    print(f"{first:.3f}", f"{seconds[prompt]:.3f}" if prompt in seconds else "-")
except (OSError, ValueError, KeyError) as problem:
    print("failed", repr(problem))
P
}

# measure_peer NAME MODEL PROMPT [OPTION]...
measure_peer() {
  local name=$1-peer model=$2 prompt=$3 step
  shift 3
  for step in $((2 * turn)) "$turn"; do
    "$PEER" -m "$model" -c $((prompt + 2 * step)) -b "$step" -ub "$step" -n 1 -ngl 99 -fa on \
      --output-format jsonl -wb "$@" >"$out/$name-$step.log" 2>&1  # rows are on stderr
    read -r first second <<<"$(peer_seconds "$step" "$out/$name-$step.log")"
    echo "| $name, steps of $step | $prompt | $first | $second |"
  done
}

echo "| model, layers, GPU memory for experts | prompt | first token, s |" \
  "of $turn more, s |"
for row in $rows; do
  IFS=: read -r shape type layers prompt near far <<<"$row"
  model=$scratch/turns-$shape.gguf
  "$bin/moeflux" synth --like "$shape" --gguf "$type" --layers "$layers" -o "$model" --force \
    >"$out/synth.log" 2>&1 || { tail -3 "$out/synth.log"; continue; }
  measure "$shape-$layers-all" "$model" "$prompt"
  measure "$shape-$layers-$near" "$model" "$prompt" --near-cache "$near"
  if [ -x "${PEER:-}" ]; then
    measure_peer "$shape-$layers-all" "$model" "$prompt"
    [ -z "$far" ] || measure_peer "$shape-$layers-$near" "$model" "$prompt" \
      -ot "blk\\.($(seq -s'|' "$far" $((layers - 1))))\\.ffn_.*_exps=CPU"
  fi
  rm -f "$model"
done
