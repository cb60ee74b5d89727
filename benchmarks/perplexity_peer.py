#!/usr/bin/env python3
"""Perplexity of the same GGUF files by llama-perplexity and by moeflux, and how far they lie apart.

    perplexity_peer.py --peer llama-perplexity --moeflux build/release/bin/moeflux -f TEXT GGUF...

The peer saves its log-probabilities; moeflux reads them (perplexity --kl-base), checks that its own
tokenizer makes the same tokens of the text, and evaluates them in each precision. Prints a table in
Markdown. Exits 1 where perplexities differ by more than --within percent.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile

HEADER = ("file", "llama-perplexity", "moeflux", "precision", "change, %", "mean KL", "p99 KL",
          "same top token, %")
PEER = re.compile(r"Final estimate: PPL .*= ([0-9.]+)")
OURS = re.compile(r"perplexity ([0-9.]+) .*, (\d+) tokens, .*\nbase perplexity ([0-9.]+) .*\n"
                  r"change of perplexity ([-+0-9.]+) %\n"
                  r"KL\(base \|\| this\) mean (\S+), p99 (\S+) nats; same top token (\S+) %\n")


def search(pattern, command):
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          errors="replace", check=False)
    found = pattern.search(done.stdout + done.stderr)
    if done.returncode != 0 or not found:
        sys.exit(f"{' '.join(command)}: exit status {done.returncode}\n{done.stderr[-2000:]}")
    return found.groups()


def compare(options, path, saved):
    """Rows of the table, and the greatest difference in percent."""
    (peer,) = search(PEER, [options.peer, "-m", path, "-f", options.file, "-t", options.threads,
                            "-c", options.window, "-b", options.window,
                            "--kl-divergence-base", saved])
    rows, greatest = [], 0.0
    for precision in options.precision.split(","):
        ours, tokens, base, change, mean, p99, top = search(
            OURS, [options.moeflux, "perplexity", "-m", path, "-f", options.file,
                   "-t", options.threads, "--precision", precision, "--kl-base", saved])
        if abs(float(base) / float(peer) - 1) > 1e-4:
            sys.exit(f"{path}: {base} from saved log-probabilities, {peer} printed")
        change = 100 * (float(ours) / float(peer) - 1)
        greatest = max(greatest, abs(change))
        rows.append((os.path.basename(path), peer, ours, precision, f"{change:+.3f}", mean, p99,
                     top))
        print(f"{path} {precision}: {tokens} tokens", file=sys.stderr)
    return rows, greatest


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("files", nargs="+", metavar="GGUF")
    parser.add_argument("--peer", required=True, help="its llama-perplexity")
    parser.add_argument("--moeflux", required=True)
    parser.add_argument("-f", "--file", required=True, help="text of at least two windows")
    parser.add_argument("-c", "--window", default="512")
    parser.add_argument("-t", "--threads", default="2")
    parser.add_argument("--precision", default="int8,f32")
    parser.add_argument("--within", type=float, default=0.2, metavar="PERCENT")
    options = parser.parse_args()
    print("| " + " | ".join(HEADER) + " |\n" + "|---" * len(HEADER) + "|")
    apart = []
    with tempfile.TemporaryDirectory() as folder:
        for path in options.files:
            rows, greatest = compare(options, path, os.path.join(folder, "saved"))
            for row in rows:
                print("| " + " | ".join(row) + " |", flush=True)
            if greatest > options.within:
                apart.append(f"{path}: {greatest:.3f} %")
    if apart:
        print(f"more than {options.within} % apart: {', '.join(apart)}", file=sys.stderr)
    return 1 if apart else 0


if __name__ == "__main__":
    sys.exit(main())
