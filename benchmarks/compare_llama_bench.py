#!/usr/bin/env python3
"""moeflux bench beside another program's llama-bench: in turn, A B A B, and one table of both.

    benchmarks/compare_llama_bench.py --moeflux build/moeflux --moeflux-model DIR \\
        --peer llama-bench --peer-model FILE.gguf -p 512 -n 32 -d 0,4096 -t 2 \\
        --moeflux-args="--precision int8" --peer-args="-fa 1"

Works with any llama-bench that prints JSON. One that has no -d measures tokens generated at a
depth with -gp, if it has that, and prompts at depth 0 only. A ratio is taken of each pair of
neighbouring runs, so that what slows both cancels; the table has the median and the range. --raw
keeps what both printed with machine, builds, threads and probe, for README's table.
"""

import argparse
import datetime
import json
import os
import re
import shlex
import statistics
import subprocess
import sys
from collections import namedtuple

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import raw_results  # noqa: E402

# One kind of measurement: prompt tokens, generated tokens, tokens in the context before.
Test = namedtuple("Test", "prompt gen depth")


class CompareError(Exception):
    """A failure, in one sentence for the user."""


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
    """The test that a result is of. A label like tg32@pp4096 means a depth that is not timed."""
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
    # Threads are the CPU's: a GPU is measured where it is asked for.
    own = shlex.split(options.moeflux_args)
    if "--device" not in own:
        own = ["--device", "cpu", *own]
    return [[options.moeflux, "bench", "-m", options.moeflux_model,
             "-p", joined(options.prompts), "-n", joined(options.gens),
             "-d", joined(options.depths), "-t", str(options.threads),
             "-r", str(options.repetitions), "-o", "json", *own]]


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
    """The output of every run, in the order they ran: A B A B."""
    runs = []
    for turn in range(1, rounds + 1):
        for side, commands in sides.items():
            print(f"round {turn} of {rounds}: {names[side]}", file=log, flush=True)
            load = raw_results.load_average()
            results = [r for c in commands for r in run(c, prefix)]
            runs.append({"program": names[side], "round": turn, "load_average": load,
                         "results": raw_results.without_folders(results)})
    return runs


def results_of(runs, name):
    """The results of one program, as one list per round."""
    return [run["results"] for run in runs if run["program"] == name]


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


def bound_cell(results, test):
    """The share of the probed bandwidth that each run's decoded tokens took, least to greatest."""
    shares = [r["share_of_bound"] for one in results for r in one
              if test_of(r) == test and test.gen > 0 and r.get("share_of_bound")]
    if not shares:
        return "-"
    return " to ".join(dict.fromkeys(f"{s:.2f}" for s in (min(shares), max(shares))))


def table(runs, names):
    """A markdown table: a row per test of either side, in the order of the first side."""
    rounds = [[speeds_of(r) for r in results_of(runs, name)] for name in names]
    tests = list(dict.fromkeys(t for side in rounds for one in side for t in one))
    rows = [["test", *(f"{name}, tokens/s" for name in names), "ratio",
             f"{names[0]} of the bound"]]
    for test in tests:
        sides = [[one.get(test, []) for one in side] for side in rounds]
        cells = [speed_cell([s for one in side for s in one]) for side in sides]
        rows.append([name_of(test), *cells, ratio_cell(*sides),
                     bound_cell(results_of(runs, names[0]), test)])
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = ["| " + " | ".join(c.ljust(w) for c, w in zip(row, widths)) + " |" for row in rows]
    lines.insert(1, "|" + "|".join("-" * (w + 2) for w in widths) + "|")
    return "\n".join(lines) + "\n"


def program_line(program, results):
    first = results[0][0]
    size, parameters = int(first.get("model_size", 0)), int(first.get("model_n_params", 0))
    bits = f", {8 * size / parameters:.2f} bits a weight" if parameters else ""
    differ = ", sources differ from it" if program.get("sources_differ") else ""
    return (f"{program['name']} ({program['commit']}{differ}; "
            f"{raw_results.build_line(program['build'])}): "
            f"{first.get('model_type', '?')}, {size / 2**30:.2f} GiB{bits}")


def probe_line(runs, name):
    speeds = [r["memory_bandwidth"] / 1e9 for one in results_of(runs, name) for r in one
              if r.get("memory_bandwidth")]
    if not speeds:
        return f"Memory: not probed by {name}"
    return f"Memory, as {name} probed it: {min(speeds):.1f} to {max(speeds):.1f} GB/s"


def placement_line(threads, placed):
    variables = [f"{name}={value}" for name, value in placed.get("variables", {}).items()]
    cpus = placed.get("cpus") or "any"
    return f"{threads} threads each on CPUs {cpus}" + "".join(f", {v}" for v in variables)


def report(record):
    names = [program["name"] for program in record["programs"]]
    runs, rounds = record["runs"], max(run["round"] for run in record["runs"])
    lines = [table(runs, names), f"Machine: {raw_results.machine_line(record['machine'])}.  ",
             f"{probe_line(runs, names[0])}.  ",
             f"{placement_line(record['threads'], record['placement'])}.  "]
    lines += [f"{program_line(p, results_of(runs, p['name']))}.  " for p in record["programs"]]
    lines += [f"`{command}`  " for p in record["programs"] for command in p["commands"]]
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
    add("--raw", metavar="FILE", help="keep what both printed, and the machine, in this JSON file")
    add("--append", metavar="FILE", help="append the report to a file of results")
    add("--title", default="Side by side", help="its heading there, after the date")
    return parser.parse_args(arguments)


def measure(options, log):
    """Everything there is to keep of a comparison."""
    peer = options.peer_name or os.path.basename(options.peer)
    names = {"A": "moeflux", "B": peer if peer != "moeflux" else "the other moeflux"}
    paths = {"A": options.moeflux, "B": options.peer}
    prefix = shlex.split(options.prefix)
    sides = {"A": moeflux_commands(options), "B": peer_commands(options, help_of(options.peer))}
    record = raw_results.started("side by side", options.title)
    record["threads"] = options.threads
    record["placement"] = raw_results.placement(prefix)
    runs = run_rounds(sides, names, options.rounds, prefix, log)
    record["programs"] = []
    for side, name in names.items():
        commit = results_of(runs, name)[0][0].get("build_commit", "unknown")
        program = raw_results.program_record(name, paths[side], commit)
        program["commands"] = [raw_results.shown(command) for command in sides[side]]
        record["programs"].append(program)
    return {**record, "runs": runs}


def main(arguments, out=sys.stdout, log=sys.stderr):
    options = parse_arguments(arguments)
    try:
        record = measure(options, log)
        text = report(record)
        print(text, end="", file=out)
        if options.raw:
            raw_results.write(options.raw, record)
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
