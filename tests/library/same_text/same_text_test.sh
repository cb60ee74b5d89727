#!/bin/sh
# One text from the program, C, C++ and Python: same prompt, seed and flags, and everything else as
# each of them has it by default.
#
#   same_text_test.sh PROGRAM C_PROGRAM CPP_PROGRAM [PYTHON PACKAGE_FOLDER]
set -eu
here=$(dirname "$0")
program=$1
c=$2
cpp=$3
python=${4:-}
[ -z "$python" ] || export PYTHONPATH="$5"
model=$here/../../../models/fable-20m
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
compared=0

# same WHO COMMAND...: the command writes what the program has written.
same() {
  who=$1
  shift
  "$@" >"$folder/text"
  cmp -s "$folder/expected" "$folder/text" || {
    echo "same_text_test: $*:" >&2
    echo "the program wrote: $(cat "$folder/expected")" >&2
    echo "$who wrote: $(cat "$folder/text")" >&2
    exit 1
  }
  compared=$((compared + 1))
}

# others MODE [VALUE]: the text of the program, which is known, and that of the others.
others() {
  [ "$(wc -c <"$folder/expected")" -gt 20 ] || {
    echo "same_text_test: $*: the program wrote only '$(cat "$folder/expected")'" >&2
    exit 1
  }
  same C "$c" "$model" "$prompt" "$@"
  same C++ "$cpp" "$model" "$prompt" "$@"
  [ -z "$python" ] || same Python "$python" "$here/same_text.py" "$model" "$prompt" "$@"
}

# run FLAGS...: the program's text; sampled FLAGS... with the sampler of all modes but the default.
run() { "$program" run -q -m "$model" "$@" "$prompt" >"$folder/expected"; }
sampled() {
  run --ignore-eos --temp 0.9 --top-k 30 --top-p 0.95 --min-p 0.02 --repeat-penalty 1.2 \
    --repeat-last-n 32 --presence-penalty 0.1 --frequency-penalty 0.2 --seed 7 \
    --typical 0.95 --dynatemp-range 0.25 --dry-multiplier 0.75 --dry-sequence-breaker '\n' \
    --samplers 'penalties;dry;typ_p;top_k;top_p;min_p;temperature' "$@"
}

for prompt in "Once upon a time" "“Ah,” said the old king to his ravens, “a café!”"; do
  run
  others default
  # Cut short after a number of tokens, by the context and by the callback.
  sampled -n 25
  others short 25
  others cancelled 25
  sampled -n -1 -c 48
  others full 48
  sampled -n 60
  others sampled
  # A word of the text that does not come early, and what comes before it.
  text=$(cat "$folder/expected")
  for number in 12 13 14 15 16 17 18 19 20; do
    word=$(echo "$text" | tr -s '[:space:]' '\n' | sed -n ${number}p)
    printf '%s\n' "${text%%"$word"*}" >"$folder/expected"
    [ "$(wc -c <"$folder/expected")" -le 20 ] || break
  done
  others stopped "$word"
done
echo "same_text_test: $compared texts are the program's${python:+, Python's among them}"
