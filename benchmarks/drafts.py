#!/usr/bin/env python3
"""Measures drafts on the forced texts of texts/, with and without them in turn, and prints medians.

    drafts.py --moeflux build/release/bin/moeflux [--model MODEL] [--device cuda:0] [--draft auto]
              [--pairs 20] [--texts edit:0.4,tools:0.4,array:0.25,chat:0.1,prose:0.08] [--times]

A text's number is the share of what is written in it that is measured, behind its whole prompt. The
shares above take an H200 some 250 s with a model of 550 tokens/s; two GPUs take half of the texts
each. On two CPU cores, where others run as well, a small shape and processor time will do:

    moeflux synth --like tiny -o MODEL
    drafts.py --moeflux build/release/bin/moeflux --model MODEL --threads 2

Each text is a process of its own, so what was printed stays where a later one is stopped. --times
prints what steps of each number of rows took.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

TEXTS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "texts")


def first_share(text, share):
    """The prompts, and the first `share` of what is written behind them."""
    parts = text.split("\f")
    is_written = [len(parts) == 1 or i % 2 == 1 for i in range(len(parts))]
    left = int(share * sum(len(part) for part, written in zip(parts, is_written) if written))
    kept = []
    for part, written in zip(parts, is_written):
        if left <= 0:
            break
        kept.append(part[:left] if written else part)
        left -= len(part) if written else 0
    return "\f".join(kept)


def quartiles(values):
    if len(values) < 2:
        return values * 3
    return statistics.quantiles(values, n=4, method="inclusive")


def gains(result, name):
    """The time without drafts over that with them, for each pair."""
    return [a / b for a, b in zip(result[f"samples_{name}_without"], result[f"samples_{name}"])]


def bench(args, path):
    command = [args.moeflux, "bench", "--text", path, "-r", str(args.pairs), "-o", "json",
               "--draft", args.draft, "--draft-max", str(args.draft_max), "-q"]
    for option, value in (("-m", args.model), ("--device", args.device), ("-t", args.threads),
                          ("--draft-mtp", args.draft_mtp)):
        if value:
            command += [option, str(value)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout)[0]


def report(name, share, result, times):
    low, middle, high = quartiles(gains(result, "ns"))
    cpu = statistics.median(gains(result, "cpu_ns"))
    print(f"{name:6} {share:5.2f} {result['tokens']:6} {result['steps']:6} {result['rows']:6} "
          f"{result['draft_n']:7} {result['draft_n_accepted']:8} {result['tokens_per_step']:6.2f} "
          f"{result['avg_ts']:8.1f} {result['avg_ts_without']:8.1f}  {middle:.3f} "
          f"({low:.3f} to {high:.3f})  {cpu:.3f}", flush=True)
    if times:
        sizes = sorted(result["sizes"].items(), key=lambda size: int(size[0]))
        print("  rows: steps, mean us, least us: " + " | ".join(
            f"{rows}: {size['steps']} {1e6 * size['seconds'] / size['steps']:.0f} "
            f"{1e6 * size['least_seconds']:.0f}" for rows, size in sizes), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--moeflux", required=True)
    parser.add_argument("--model", help="the embedded one where it is left out")
    parser.add_argument("--device")
    parser.add_argument("--threads")
    parser.add_argument("--draft", default="auto", choices=["auto", "on"])
    parser.add_argument("--draft-max", type=int, default=64)
    parser.add_argument("--draft-mtp", type=int, default=0)
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--texts", default="edit:0.4,tools:0.4,array:0.25,chat:0.1,prose:0.08")
    parser.add_argument("--times", action="store_true")
    args = parser.parse_args()
    print(f"--draft {args.draft}, {args.pairs} pairs\n"
          "text   share tokens  steps   rows drafted accepted t/step      t/s  without  "
          "gain (quartiles)  CPU time", flush=True)
    for entry in args.texts.split(","):
        name, _, share = entry.partition(":")
        share = float(share or 1)
        with open(os.path.join(TEXTS, name + ".txt"), encoding="utf-8") as file:
            text = first_share(file.read(), share)
        with tempfile.NamedTemporaryFile("w", suffix=".txt", encoding="utf-8") as part:
            part.write(text)
            part.flush()
            report(name, share, bench(args, part.name), args.times)
    return 0


if __name__ == "__main__":
    sys.exit(main())
