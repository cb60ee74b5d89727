#!/bin/bash
# Every split of a model between two GPUs beside one, behind several depths.
#
#   splits.sh BIN OUT [SHAPE:LAYERS]...
#
# BIN has moeflux. A row is one run of `moeflux bench`: text of TOKENS (64) and prompts of PROMPTS
# (0: none) behind each of DEPTHS (0,8192,65536), REPETITIONS (2) times. Layers are cut alike for
# all rows of a shape, so that a table fits its time; the models are made in SCRATCH (/tmp), in
# TYPE (Q4_0). ROUNDS (2) go through the rows forwards and backwards in turn. ROWS has
# "NAME=OPTIONS"; by default one GPU, layers, experts and attention of CARDS (cuda:0+cuda:1), and
# `auto`. A row that takes longer than ROW_SECONDS (60) is ended. Where PEER is a llama-bench, rows
# of PEER_ROWS (its splits by layers and by graph) follow in the last round, a repetition each,
# prompts without a depth. To try the script out in a minute:
#
#   CARDS=emulator:0+emulator:1 ROWS='layers=--split_layers' TOKENS=2 DEPTHS=0,16 ROUNDS=1 \
#     TYPE=Q8_0 benchmarks/splits.sh BIN OUT tiny:2
set -u
here=$(dirname "$0")
bin=$1 out=$2
shift 2
shapes=${*:-qwen3.6-35b-a3b:12 deepseek-v3:5}
scratch=${SCRATCH:-/tmp}
cards=${CARDS:-cuda:0+cuda:1}
# An underscore stands for a space.
rows=${ROWS:-one=--device_${cards%%+*} layers=--split_layers experts=--split_experts \
  attention=--split_attention auto=--device_auto}
peer_rows=${PEER_ROWS:-layer=-sm_layer graph=-sm_graph}
mkdir -p "$out"

measure() {
  local name=$1 model=$2 row=$3
  local options=${row#*=}
  options=${options//_/ }
  case $options in *--device*) ;; *) options="--device $cards $options" ;; esac
  # shellcheck disable=SC2086
  timeout -k 5 "${ROW_SECONDS:-60}" "$bin/moeflux" bench -m "$model" $options -p "${PROMPTS:-0}" \
    -n "${TOKENS:-64}" -d "${DEPTHS:-0,8192,65536}" -r "${REPETITIONS:-2}" --expert-io pread \
    -o json >"$out/$name.json" 2>"$out/$name.log" || {
    echo "$name: failed"
    tail -2 "$out/$name.log"
    return
  }
  echo "-- $name ($SECONDS s)"
  python3 "$here/tiers_report.py" bench "$out/$name.json"
}

# The peer tells what it generates behind a prompt as -gp, which times no prompt.
measure_peer() {
  local name=$1 model=$2 options=${3#*=}
  local -a depths=()
  local depth
  for depth in $(tr ',' ' ' <<<"${DEPTHS:-0,8192,65536}"); do
    [ "$depth" = 0 ] || depths+=(-gp "$depth,${TOKENS:-64}")
  done
  # shellcheck disable=SC2086
  timeout -k 5 "${ROW_SECONDS:-60}" "$PEER" -m "$model" -ngl 99 -fa 1 -fmoe 1 -b 4096 -ub 4096 \
    -p "${PROMPTS:-0}" -n "${TOKENS:-64}" "${depths[@]}" -r 1 -o json ${options//_/ } \
    >"$out/$name.json" 2>"$out/$name.log" || {
    echo "$name: failed"
    tail -2 "$out/$name.log"
    return
  }
  echo "-- $name ($SECONDS s)"
  python3 "$here/tiers_report.py" peer "$out/$name.json"
}

for shape in $shapes; do
  model=$scratch/splits-${shape%%:*}.gguf
  "$bin/moeflux" synth --like "${shape%%:*}" --gguf "${TYPE:-Q4_0}" --layers "${shape##*:}" \
    -o "$model" --force >"$out/synth.log" 2>&1 || { tail -3 "$out/synth.log"; continue; }
  order=$rows
  for round in $(seq "${ROUNDS:-2}"); do
    for row in $order; do measure "${shape%%:*}-${row%%=*}-$round" "$model" "$row"; done
    order=$(printf '%s\n' $order | tac)
  done
  if [ -x "${PEER:-}" ]; then
    for row in $peer_rows; do measure_peer "${shape%%:*}-peer-${row%%=*}" "$model" "$row"; done
  fi
  rm -f "$model"
done
