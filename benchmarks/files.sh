#!/bin/bash
# The files that people have, beside another program's llama-bench, on one machine:
#
#   benchmarks/files.sh MOEFLUX PEER OUT [STEP]...     (default: resident near)
#
#   resident  every file of FILES, all of it on the device
#   near      the files of NEAR_FILES with NEAR (4G) of experts on the device, beside the faster of
#             the peer's two ways: all experts on the CPU, or those of FAR_LAYERS
#   layers    the files of LAYERS_FILES, without experts, with MEMORY (12288) MiB of the device,
#             beside the peer with each of PEER_LAYERS on it; a line says how much memory that takes
#   cpu       the files of CPU_FILES on THREADS cores, without a device
#
# A file is TYPE, which stands for the 35B model, SHAPE:TYPE or SHAPE:TYPE:LAYERS. Models are of
# random numbers (moeflux synth), one at a time in SCRATCH (/tmp). Programs run in turn, ROUNDS (2)
# times; OUT gets a line a file in table.md, what both printed in raw-*.json, and logs. PEER may be
# a name of no program: then moeflux is measured alone.
#
# DEVICE (cuda:0), PROMPTS (512,4096), TOKENS (64), PEER_ARGS (what the peer gets in every run),
# PREFIX (what every run begins with, like "taskset -c 0,1"), REPETITIONS (2) of a run.
set -u
here=$(dirname "$0")
moeflux=$1 peer=$2 out=$3
shift 3
steps=${*:-resident near}
device=${DEVICE:-cuda:0}
scratch=${SCRATCH:-/tmp}
prompts=${PROMPTS:-512,4096}
tokens=${TOKENS:-64}
threads=${THREADS:-$(nproc)}
files=${FILES:-Q4_0 Q4_K IQ4_XS IQ3_S IQ2_XS Q2_0 qwen3-30b-a3b:Q4_0 gpt-oss-120b:MXFP4}
near_files=${NEAR_FILES:-Q4_0 Q4_K IQ3_S IQ2_XS}
cpu_files=${CPU_FILES:-qwen3.6-35b-a3b:Q4_0:8 qwen3.6-35b-a3b:Q4_K:8 qwen3.6-35b-a3b:IQ4_XS:8 \
  qwen3.6-35b-a3b:IQ3_S:8 qwen3.6-35b-a3b:IQ2_XS:8 gpt-oss-20b:MXFP4:8}
layers_files=${LAYERS_FILES:-qwen3.8-27b:Q4_K}
memory=${MEMORY:-12288}
peer_args=${PEER_ARGS:--fa 1 -fmoe 1 -b 4096 -ub 4096}
model=$scratch/moeflux-files.$$.gguf
mkdir -p "$out"
trap 'rm -f "$model"' EXIT

# synthesize FILE: writes the model; `name` becomes what logs are called.
synthesize() {
  local shape=qwen3.6-35b-a3b type=$1 layers=0
  case $1 in *:*) IFS=: read -r shape type layers <<<"$1" ;; esac
  name=$shape-$type
  rm -f "$model"
  "$moeflux" synth --like "$shape" --gguf "$type" --layers "${layers:-0}" -o "$model" --force \
    >"$out/synth-$name.log" 2>&1 || {
    echo "$name: no model: $(tail -1 "$out/synth-$name.log")" | tee -a "$out/table.md"
    return 1
  }
}

# alone STEP OURS: what moeflux does without a peer, or where the peer cannot read the file.
alone() {
  local log=$out/$1-$name
  # shellcheck disable=SC2086  # options are words
  "$moeflux" bench -m "$model" -p "$prompts" -n "$tokens" -t "$threads" -r 2 -o json $2 \
    >"$log.json" 2>"$log.log" || tail -2 "$log.log"
  python3 "$here/cuda_report.py" bench "$log.json" | sed "s/^/$1 $name: /" |
    tee -a "$out/table.md"
}

# compare STEP OURS THEIRS: rows of the table.
compare() {
  local log=$out/$1-$name
  [ -x "$peer" ] || { alone "$1" "$2"; return; }
  python3 "$here/compare_llama_bench.py" --moeflux "$moeflux" --moeflux-model "$model" \
    --peer "$peer" --peer-model "$model" -p "$prompts" -n "$tokens" -t "$threads" \
    -r "${REPETITIONS:-2}" --rounds "${ROUNDS:-2}" --prefix "${PREFIX:-}" \
    --moeflux-args="$2" --peer-args="$3 $peer_args" \
    --title "$1, $name" --raw "$out/raw-$1-$name.json" >"$log.md" 2>"$log.log" || {
    tail -1 "$log.log" | cut -c1-200
    alone "$1" "$2"
    return
  }
  grep -E '^\| (pp|tg)' "$log.md" | sed "s/^/| $1 | $name /" | tee -a "$out/table.md"
}

# tell_memory LAYERS: the most of the device's memory that the peer takes with so many layers there.
tell_memory() {
  local log=$out/memory-$name-$1
  [ -x "$peer" ] || return
  nvidia-smi -i "${CUDA_VISIBLE_DEVICES:-0}" --query-gpu=memory.used -lms 100 \
    --format=csv,noheader,nounits >"$log.csv" &
  # shellcheck disable=SC2086  # options are words
  ${PREFIX:-} "$peer" -m "$model" -t "$threads" -r 1 -p 512 -n 1 -ngl "$1" $peer_args \
    >"$log.log" 2>&1
  kill $!
  echo "| memory | $name, -ngl $1 | $(sort -n "$log.csv" | tail -1) MiB |" | tee -a "$out/table.md"
}

own="--device $device --reader-threads 16"
for step in $steps; do
  case $step in
    resident) list=$files ;;
    near) list=$near_files ;;
    layers) list=$layers_files ;;
    cpu) list=$cpu_files ;;
    *) echo "$step: expected resident, near, layers or cpu" >&2 && exit 2 ;;
  esac
  for file in $list; do
    synthesize "$file" || continue
    case $step in
      resident) compare resident "$own" '-ngl 99' ;;
      near)
        near="$own --expert-io pread --near-cache ${NEAR:-4G} --plan auto"
        compare near-experts "$near" '-ngl 99 -ot exps=CPU'
        compare near-layers "$near" "-ngl 99 -ot blk\\.${FAR_LAYERS:-[1-3][0-9]}\\.ffn_.*_exps=CPU"
        ;;
      layers)
        for count in ${PEER_LAYERS:-44 40 36}; do
          tell_memory "$count"
          compare "layers-$count" "--device $device,memory=$memory" "-ngl $count"
        done
        ;;
      cpu) compare cpu '--device cpu' '-ngl 0' ;;
    esac
  done
done
