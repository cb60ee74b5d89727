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

# same WHO MODE PROMPT COMMAND...: the command writes what the program has written.
same() {
  who=$1
  mode=$2
  prompt=$3
  shift 3
  "$@" "$model" "$prompt" "$mode" >"$folder/text"
  cmp -s "$folder/expected" "$folder/text" || {
    echo "same_text_test: $mode, after '$prompt':" >&2
    echo "the program wrote: $(cat "$folder/expected")" >&2
    echo "$who wrote: $(cat "$folder/text")" >&2
    exit 1
  }
  compared=$((compared + 1))
}

# compare MODE PROMPT FLAGS...: the program with these flags, then the others.
compare() {
  mode=$1
  prompt=$2
  shift 2
  "$program" run -q -m "$model" "$@" "$prompt" >"$folder/expected"
  [ "$(wc -c <"$folder/expected")" -gt 40 ] || {
    echo "same_text_test: the program wrote only '$(cat "$folder/expected")'" >&2
    exit 1
  }
  same C "$mode" "$prompt" "$c"
  same C++ "$mode" "$prompt" "$cpp"
  [ -z "$python" ] || same Python "$mode" "$prompt" "$python" "$here/same_text.py"
}

for prompt in "Once upon a time" "“Ah,” said the old king to his ravens, “a café!”"; do
  compare default "$prompt"
  compare sampled "$prompt" -n 60 --ignore-eos --temp 0.9 --top-k 30 --top-p 0.95 --min-p 0.02 \
    --repeat-penalty 1.2 --repeat-last-n 32 --presence-penalty 0.1 --frequency-penalty 0.2 --seed 7
done
echo "same_text_test: $compared texts are the program's${python:+, Python's among them}"
