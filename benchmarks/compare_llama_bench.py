#!/usr/bin/env python3
"""moeflux bench beside another program's llama-bench: in turn, A B A B, and one table of both.

    benchmarks/compare_llama_bench.py --moeflux build/moeflux --moeflux-model DIR \\
        --peer llama-bench --peer-model FILE.gguf -p 512 -n 32 -d 0,4096 -t 2 \\
        --moeflux-args="--precision int8" --peer-args="-fa 1"

Works with any llama-bench that prints JSON. One that has no -d measures tokens generated at a
depth with -gp, if it has that, and prompts at depth 0 only. A ratio is taken of each pair of
neighbouring runs, so that what slows both cancels; the table has the median and the range.
"""

import argparse
import datetime
import json
import os
import platform
import re
import shlex
import statistics
import subprocess
import sys
from collections import namedtuple

# One kind of measurement: prompt tokens, generated tokens, tokens in the context before.
Test = namedtuple("Test", "prompt gen depth")


class CompareError(Exception):
    """What went wrong, in one sentence for the user."""


def name_of(test):
    parts = [f"pp{test.prompt}"] if test.prompt else []
    parts += [f"tg{test.gen}"] if test.gen else []
    return "+".join(parts) + (f" @ d{test.depth}" if test.depth else "")


def parse_json(text, program):
    """The list of results in a program's output, whatever it logs around it."""
    for begin in re.finditer(r"^\[", text, re.MULTILINE):
        try:
            results, _ = json.JSONDecoder().raw_decode(text, begin.start())
        except json.JSONDecodeError:
            continue
        if results and all(isinstance(r, dict) and "samples_ts" in r for r in results):
            return results
    raise CompareError(f"{program}: expected a JSON list of results, found {text[:200]!r}")


def test_of(result):
    """Which test a result is of. A label like tg32@pp4096 means a depth that is not timed."""
    prompt, gen = int(result["n_prompt"]), int(result["n_gen"])
    if re.fullmatch(r"tg\d+@pp\d+", result.get("test", "")):
        return Test(0, gen, prompt)
    return Test(prompt, gen, int(result.get("n_depth", 0)))


def speeds_of(results):
    """Tokens per second of every sample, by test."""
    speeds = {}
    for result in results:
        speeds.setdefault(test_of(result), []).extend(float(s) for s in result["samples_ts"])
    return speeds


def joined(counts):
    return ",".join(str(n) for n in counts)


def moeflux_commands(options):
    return [[options.moeflux, "bench", "-m", options.moeflux_model,
             "-p", joined(options.prompts), "-n", joined(options.gens),
             "-d", joined(options.depths), "-t", str(options.threads),
             "-r", str(options.repetitions), "-o", "json", *shlex.split(options.moeflux_args)]]


def peer_commands(options, help_text):
    """One command where the program knows depths; else one that says them as it can."""
    base = [options.peer, "-m", options.peer_model, "-t", str(options.threads),
            "-r", str(options.repetitions), "-o", "json", *shlex.split(options.peer_args)]
    counts = ["-p", joined(options.prompts), "-n", joined(options.gens)]
    if "--n-depth" in help_text:
        return [base + counts + ["-d", joined(options.depths)]]
    words = counts if 0 in options.depths else ["-p", "0", "-n", "0"]
    deep = [(d, n) for d in options.depths for n in options.gens if d > 0 and n > 0]
    if deep and re.search(r"^\s*-gp\b", help_text, re.MULTILINE):
        for depth, gen in deep:
            words = words + ["-gp", f"{depth},{gen}"]
    elif 0 not in options.depths:
        raise CompareError(f"{options.peer}: offers neither -d nor -gp, and -d lacks 0")
    return [base + words]


def run(command, prefix):
    """The results a command prints."""
    try:
        done = subprocess.run(prefix + command, stdin=subprocess.DEVNULL, capture_output=True,
                              text=True, errors="replace", check=False)
    except OSError as error:
        raise CompareError(f"{(prefix + command)[0]}: cannot be run: {error.strerror}") from error
    if done.returncode != 0:
        raise CompareError(f"{shlex.join(command)}: exit status {done.returncode}: "
                           f"{done.stderr.strip()[-400:]}")
    return parse_json(done.stdout, command[0])


def help_of(program):
    try:
        done = subprocess.run([program, "--help"], stdin=subprocess.DEVNULL, capture_output=True,
                              text=True, errors="replace", check=False)
    except OSError as error:
        raise CompareError(f"{program}: cannot be run: {error.strerror}") from error
    return done.stdout + done.stderr


def run_rounds(sides, names, rounds, prefix, log):
    """All results by side, as one list per round: A B A B."""
    results = {side: [] for side in sides}
    for turn in range(rounds):
        for side, commands in sides.items():
            print(f"round {turn + 1} of {rounds}: {names[side]}", file=log, flush=True)
            results[side].append([r for c in commands for r in run(c, prefix)])
    return results


def speed_cell(samples):
    if not samples:
        return "-"
    spread = f" ({min(samples):.2f} to {max(samples):.2f})" if len(samples) > 1 else ""
    return f"{statistics.median(samples):.2f}{spread}"


def ratio_cell(mine, theirs):
    """The median of the ratios of paired runs, and their range; lists have one entry a run."""
    if not all(mine) or not all(theirs) or not mine:
        return "-"
    pairs = [statistics.median(a) / statistics.median(b) for a, b in zip(mine, theirs)]
    spread = f" ({min(pairs):.2f} to {max(pairs):.2f})" if len(pairs) > 1 else ""
    return f"{statistics.median(pairs):.2f}{spread}"


def table(results, names):
    """A markdown table: a row per test of either side, in the order of the first side."""
    rounds = {side: [speeds_of(r) for r in results[side]] for side in names}
    tests = list(dict.fromkeys(t for side in names for one in rounds[side] for t in one))
    rows = [["test", *(f"{names[side]}, tokens/s" for side in names), "ratio"]]
    for test in tests:
        sides = [[one.get(test, []) for one in rounds[side]] for side in names]
        cells = [speed_cell([s for one in side for s in one]) for side in sides]
        rows.append([name_of(test), *cells, ratio_cell(*sides)])
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = ["| " + " | ".join(c.ljust(w) for c, w in zip(row, widths)) + " |" for row in rows]
    lines.insert(1, "|" + "|".join("-" * (w + 2) for w in widths) + "|")
    return "\n".join(lines) + "\n"


def model_line(name, results):
    first = results[0][0]
    size, parameters = int(first.get("model_size", 0)), int(first.get("model_n_params", 0))
    bits = f", {8 * size / parameters:.2f} bits a weight" if parameters else ""
    commit = first.get("build_commit", "unknown")
    return f"{name} ({commit}): {first.get('model_type', '?')}, {size / 2**30:.2f} GiB{bits}"


def machine_line():
    cpu = platform.processor() or platform.machine()
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            found = re.search(r"^model name\s*:\s*(.+)$", file.read(), re.MULTILINE)
            cpu = found.group(1) if found else cpu
    except OSError:
        pass  # not Linux
    return f"{cpu}, {os.cpu_count()} CPUs, {platform.system()} {platform.release()}"


def shown(command):
    """A command without the folders of this machine."""
    return shlex.join(os.path.basename(w.rstrip("/")) if os.path.isabs(w) else w for w in command)


def report(results, names, sides, rounds):
    lines = [table(results, names), f"Machine: {machine_line()}.  "]
    lines += [f"{model_line(names[side], results[side])}.  " for side in names]
    lines += [f"`{shown(c)}`  " for commands in sides.values() for c in commands]
    lines.append(f"{rounds} rounds in turn; medians of all samples and of the ratios of pairs, "
                 "with least and greatest.")
    return "\n".join(lines) + "\n"


def counts(text):
    try:
        values = [int(word) for word in text.split(",")]
    except ValueError:
        values = [-1]
    if min(values) < 0:
        raise argparse.ArgumentTypeError(f"'{text}': expected numbers like 0 or 0,4096")
    return values


def at_least_one(text):
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"'{text}': expected a number of at least 1")
    return int(text)


def parse_arguments(arguments):
    parser = argparse.ArgumentParser(
        description=__doc__.split("\n", maxsplit=1)[0],
        epilog="Options that begin with a dash are passed on like --peer-args='-rtr 1'.")
    add = parser.add_argument
    add("--moeflux", required=True, metavar="PATH", help="the moeflux program")
    add("--moeflux-model", required=True, metavar="DIR", help="its model folder")
    add("--peer", required=True, metavar="PATH", help="a llama-bench")
    add("--peer-model", required=True, metavar="FILE", help="its model file")
    add("--peer-name", default="", help="how the table calls it (default: its file's name)")
    add("-p", dest="prompts", type=counts, default=[512], help="prompt tokens (default: 512)")
    add("-n", dest="gens", type=counts, default=[32], help="generated tokens (default: 32)")
    add("-d", dest="depths", type=counts, default=[0], help="tokens before (default: 0)")
    add("-t", dest="threads", type=at_least_one, default=os.cpu_count(), help="threads of both")
    add("-r", dest="repetitions", type=at_least_one, default=2, help="of a run (default: 2)")
    add("--rounds", type=at_least_one, default=2, help="runs of each program (default: 2)")
    add("--moeflux-args", default="", metavar="ARGS", help="more options of moeflux bench")
    add("--peer-args", default="", metavar="ARGS", help="more options of the peer")
    add("--prefix", default="", help="what every run begins with, like 'taskset -c 0,1'")
    add("--append", metavar="FILE", help="append the report to a file of results")
    add("--title", default="Side by side", help="its heading there, after the date")
    return parser.parse_args(arguments)


def main(arguments, out=sys.stdout, log=sys.stderr):
    options = parse_arguments(arguments)
    names = {"A": "moeflux", "B": options.peer_name or os.path.basename(options.peer)}
    try:
        sides = {"A": moeflux_commands(options),
                 "B": peer_commands(options, help_of(options.peer))}
        results = run_rounds(sides, names, options.rounds, shlex.split(options.prefix), log)
        text = report(results, names, sides, options.rounds)
        print(text, end="", file=out)
        if options.append:
            today = datetime.date.today().isoformat()
            with open(options.append, "a", encoding="utf-8") as file:
                file.write(f"\n## {today}, {options.title}\n\n{text}")
    except (CompareError, OSError) as error:
        print(f"compare_llama_bench: {error}", file=log)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
