#!/usr/bin/env python3
"""Measures streaming from the drive in a memory cgroup against its bounds, and writes Markdown.

    streaming.py --moeflux build/release/bin/moeflux --trace ROUTES.csv --output results/NAME.md
                 [--raw results/raw/DATE-streaming.json] [--model FOLDER] [--memory 8G] [--short]

Without --model, the packed shape of --like is synthesised into --scratch first (18 GiB). Each run
starts with an empty page cache in a group of its own without swap (see limited_memory.py, which
also says what rights that takes). The drive is probed before and after the runs that depend on it,
and with fio as well where that is installed. Exits with 1 when a bar is missed.

Bounds, for a token of decode: D bytes of dense weights and state, R bytes of experts it is routed
to, of which a share h was cached; B_d bytes/s of memory and B_s of the drive, as probed.

    t = D / B_d + max((1 - h) R / B_s, (R + (1 - h) R) / B_d)

Reads overlap with the layer that waits for them, not with dense weights; a byte that is read passes
memory twice. For a prompt, the larger of one sweep over the experts that the cache does not hold
and of its arithmetic at the rate of a product of 512 vectors:

    t = max((1 - slots / experts) M / B_s, multiply-adds / F)
"""
import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time

import limited_memory
import raw_results

DECODE_BAR = 0.85     # of the in-layer-overlap bound
PREFILL_BAR = 0.80    # of the larger of sweep and arithmetic
MAJOR_FAULTS_BAR = 1  # a token, more than starting the program takes


def decode_bound_seconds(bench, drive):
    """The bound of a token, from the fields of `moeflux bench -o json` and the drive's bytes/s."""
    experts = bench["expert_bytes_per_token"]
    missed = (1 - bench["expert_hit_rate"]) * experts
    dense = bench["dense_bytes_per_token"] + bench["state_bytes_per_token"]
    memory = bench["memory_bandwidth"]
    return dense / memory + max(missed / drive, (experts + missed) / memory)


def prefill_bound_seconds(plan, cache_bytes, drive):
    """The bound of the plan's prompt, from `moeflux plan --json` and what the cache held."""
    experts = plan["memory"]["experts_bytes"]
    sweep = max(0, experts - cache_bytes) / drive
    return max(sweep, plan["prompt"]["cold"]["arithmetic_seconds"])


def recorded_decode_hits(lines):
    """Hits and lookups in the decode rows of a recorded route trace."""
    hits = lookups = 0
    columns = None
    for line in lines:
        if line.startswith("#"):
            continue
        cells = line.strip().split(",")
        if columns is None:
            columns = {name: i for i, name in enumerate(cells)}
            continue
        if cells[columns["phase"]] != "1":
            continue
        lookups += 1
        hits += cells[columns["residency"]] == "1"
    return hits, lookups


class Line:
    """A measured figure with its bar."""

    def __init__(self, name, measured, bar, ratio, good):
        self.name, self.measured, self.bar, self.ratio, self.good = name, measured, bar, ratio, good

    def row(self):
        return [self.name, self.measured, self.bar, self.ratio, "met" if self.good else "MISSED"]

    def fields(self):
        return dict(zip(["what", "measured", "bar", "ratio", "verdict"], self.row()))


def judge_decode(bench, drive):
    ratio = decode_bound_seconds(bench, drive) * bench["avg_ts"]
    return Line("decode, uniform routing", f"{bench['avg_ts']:.2f} tokens/s",
                f"{1 / decode_bound_seconds(bench, drive):.2f} tokens/s x {DECODE_BAR}",
                f"{ratio:.2f}", ratio >= DECODE_BAR)


def judge_prefill(bench, plan, drive):
    bound = bench["n_prompt"] / prefill_bound_seconds(plan, bench["expert_cache_bytes"], drive)
    ratio = bench["avg_ts"] / bound
    return Line(f"prefill of {bench['n_prompt']}", f"{bench['avg_ts']:.1f} tokens/s",
                f"{bound:.1f} tokens/s x {PREFILL_BAR}", f"{ratio:.2f}", ratio >= PREFILL_BAR)


def judge_routes(recorded, replayed):
    hits, lookups = recorded
    same = (hits, lookups - hits) == (replayed["hits"], replayed["misses"])
    rate = 100 * hits / max(1, lookups)
    return Line("hits with routes of the trace", f"{hits} of {lookups}, {rate:.1f} %",
                f"replay: {replayed['hits']} of {replayed['hits'] + replayed['misses']}",
                f"{rate - 100 * replayed['hit_rate']:+.2f} points", same)


def judge_memory(name, report, start_faults, tokens):
    peak, limit = report["peak_bytes"], report["limit_bytes"]
    faults = max(0, report["process_page_faults_major"] - start_faults) / tokens
    good = (peak <= limit and report["oom_kills"] == 0 and report["swap_bytes"] == 0
            and faults < MAJOR_FAULTS_BAR)
    return Line(f"memory, {name}",
                f"peak {peak / 2**30:.2f} GiB (process {report['max_rss_bytes'] / 2**30:.2f}), "
                f"swap {report['swap_bytes']}, OOM kills {report['oom_kills']}, "
                f"{faults:.2f} major faults/token",
                f"{limit / 2**30:.2f} GiB, 0, 0, < {MAJOR_FAULTS_BAR}", f"{peak / limit:.2f}", good)


def table(header, rows):
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    return "\n".join(lines + ["| " + " | ".join(map(str, row)) + " |" for row in rows]) + "\n"


class Bench:
    """Runs the program in groups of its own and keeps what it said."""

    def __init__(self, args):
        self.args = args
        self.commands = []
        self.reports = {}

    def plain(self, *words):
        """Standard output of moeflux outside of any group."""
        command = [self.args.moeflux, *words]
        self.commands.append(command)
        return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout

    def limited(self, name, *words):
        """Standard output of moeflux in a fresh group, after dropping caches."""
        command = [self.args.moeflux, *words]
        self.commands.append(command)
        with tempfile.NamedTemporaryFile("r", encoding="utf-8") as out:
            shell = ["sh", "-c", 'out=$1; shift; exec "$@" > "$out"', "sh", out.name, *command]
            report = limited_memory.measure(shell, self.args.memory, self.args.parent, drop=True)
            text = out.read()
        self.reports[name] = report
        if report["exit_status"] != 0:
            raise SystemExit(f"{name}: exit status {report['exit_status']}, "
                             f"{report['oom_kills']} OOM kills: {' '.join(command)}")
        return text

    def bench(self, name, *words):
        text = self.limited(name, "bench", "-m", self.args.model, "--precision",
                            self.args.precision, "-r", "1", "-o", "json", *words)
        return json.loads(text)[0]

    def plan(self):
        """The plan and the probes of moeflux, unlimited."""
        return json.loads(self.plain("plan", "-m", self.args.model, "--precision",
                                     self.args.precision, "--json"))


def fio_bytes_per_second(path, blob_bytes, seconds):
    """Random direct reads of blobs, 4 in flight, after as long a warm-up; None without fio."""
    if shutil.which("fio") is None:
        return None
    out = subprocess.run(
        ["fio", "--name=blobs", f"--filename={path}", "--rw=randread", f"--bs={blob_bytes}",
         "--direct=1", "--ioengine=io_uring", "--iodepth=4", "--time_based", "--readonly",
         f"--ramp_time={seconds}", f"--runtime={seconds}", "--output-format=json"],
        check=False, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if out.returncode != 0:
        return None
    return float(json.loads(out.stdout[out.stdout.index("{"):])["jobs"][0]["read"]["bw_bytes"])


def expert_file(model):
    """The first file of blobs of a packed model."""
    folder = os.path.join(model, "experts")
    return os.path.join(folder, sorted(n for n in os.listdir(folder) if n.endswith(".experts"))[0])


def synthesise(args):
    if args.model:
        return
    args.model = os.path.join(args.scratch, "synthetic-" + args.like)
    if os.path.exists(os.path.join(args.model, "expert_pack.json")):
        return
    subprocess.run([args.moeflux, "synth", "--like", args.like, "--pack", "-o", args.model],
                   check=True)


def measure(args):
    """The lines with their bars, and the figures behind them."""
    runs = Bench(args)
    runs.limited("start", "--version")
    start_faults = runs.reports["start"]["process_page_faults_major"]
    n = args.tokens
    plans = [runs.plan()]
    decode = runs.bench("decode", "-p", "0", "-n", str(n))
    plans.append(runs.plan())
    prefill = runs.bench("prefill", "-p", str(args.prompt), "-n", "0")
    plans.append(runs.plan())
    drives = [plan["speeds"]["drive_bytes"]["per_second"] for plan in plans]
    lines = [judge_decode(decode, (drives[0] + drives[1]) / 2),
             judge_prefill(prefill, plans[1], (drives[1] + drives[2]) / 2)]
    tokens = {"decode": 2 * n, "prefill": 2 * args.prompt}  # one repetition warms up
    figures = {"decode": decode, "prefill": prefill}
    if args.trace:
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "recorded.csv")
            forced = runs.bench("routes", "-p", "0", "-n", str(args.route_tokens), "--routes",
                                args.trace, "--route-trace", path)
            experts = plans[0]["memory"]["experts_bytes"]
            slots = round(forced["expert_cache_bytes"] / plans[0]["memory"]["slot_bytes"])
            replayed = json.loads(runs.plain("replay", path, "--staging", "--cache", str(slots),
                                             "--json"))["caches"][0]
            with open(path, encoding="utf-8") as file:
                lines.append(judge_routes(recorded_decode_hits(file), replayed))
            forced["cached_share"] = forced["expert_cache_bytes"] / experts
        figures["routes"] = forced
        tokens["routes"] = 2 * args.route_tokens
    for name, count in tokens.items():
        lines.append(judge_memory(name, runs.reports[name], start_faults, count))
    return lines, figures, plans, runs


def raw_record(head, args, lines, figures, plans, runs, fio):
    """The record of a whole measurement."""
    commit = figures["decode"]["build_commit"]
    program = raw_results.program_record("moeflux", args.moeflux, commit)
    program["commands"] = [raw_results.shown(words) for words in runs.commands]
    reports = {name: {key: value for key, value in report.items() if key != "command"}
               for name, report in runs.reports.items()}
    plans = [{**plan, "model": os.path.basename(args.model)} for plan in plans]
    kept = [{"program": "moeflux", "name": name, "results": raw_results.without_folders([bench]),
             "report": reports[name]} for name, bench in figures.items()]
    return {**head, "limit_bytes": args.memory, "fio_bytes_per_second": fio,
            "placement": raw_results.placement([]), "programs": [program],
            "bars": [line.fields() for line in lines], "plans": plans, "runs": kept}


def render(head, args, lines, figures, plans, runs, fio):
    drives = ", ".join(f"{p['speeds']['drive_bytes']['per_second'] / 1e9:.2f}" for p in plans)
    arithmetic = plans[0]["speeds"]["multiply_adds"]["per_second"] / 1e9
    text = f"# Streaming in {args.memory / 2**30:g} GiB, {time.strftime('%Y-%m-%d')}\n\n"
    text += (f"{raw_results.machine_line(head['machine'])}; "
             f"commit {figures['decode']['build_commit']}; {os.path.basename(args.model)}\n\n")
    text += table(["what", "measured", "bar", "ratio", ""], [line.row() for line in lines])
    text += "\nBounds: " + __doc__[__doc__.index("for a token"):].strip() + "\n\n"
    text += (f"Probes: drive {drives} GB/s (before decode, after it, after prefill)"
             + (f", fio {fio / 1e9:.2f}" if fio else "")
             + f"; memory {figures['decode']['memory_bandwidth'] / 1e9:.1f} GB/s; "
             f"{arithmetic:.0f} billion multiply-adds/s\n\n")
    rows = [[name, f"{b['avg_ts']:.3f}", f"{100 * b['expert_hit_rate']:.1f} %",
             f"{b['storage_bytes_per_token'] / 1e6:.1f}", f"{b['stall_ns_per_token'] / 1e6:.1f}",
             f"{b['storage_bytes_per_token'] * b['avg_ts'] / 1e9:.2f}",
             f"{b['expert_cache_bytes'] / 2**30:.2f}", runs.reports[name]["limit_hits"],
             runs.reports[name]["process_page_faults_major"]] for name, b in figures.items()]
    text += table(["run", "tokens/s", "hits", "read MB/token", "stall ms/token", "drive GB/s",
                   "cache GiB", "limit hits", "major faults"], rows)
    return text + "\n```\n" + "\n".join(map(raw_results.shown, runs.commands)) + "\n```\n"


def parse(argv):
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--moeflux", default="build/release/bin/moeflux")
    parser.add_argument("--model", help="packed model folder; default: synthesise one")
    parser.add_argument("--like", default="qwen3.6-35b-a3b", help="whose shape to synthesise")
    parser.add_argument("--scratch", default="/tmp", help="where to synthesise")
    parser.add_argument("--trace", help="route trace to force routes from; none: left out")
    parser.add_argument("--memory", type=limited_memory.parse_size, default="8G")
    parser.add_argument("--parent", help="folder of the cgroup to make new ones in")
    parser.add_argument("--precision", default="int8", choices=["f32", "int8"])
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--prompt", type=int, default=512)
    parser.add_argument("--route-tokens", type=int, default=64)
    parser.add_argument("--fio-seconds", type=int, default=2, help="0: no fio")
    parser.add_argument("--short", action="store_true", help="few tokens: does it work")
    parser.add_argument("--output", help="Markdown file; default: standard output")
    parser.add_argument("--raw", help="keep what every run printed, in this JSON file")
    args = parser.parse_args(argv)
    if args.short:
        args.tokens, args.route_tokens = 8, 16
    return args


def main(argv=None):
    args = parse(argv)
    synthesise(args)
    head = raw_results.started("streaming", f"Streaming in {args.memory / 2**30:g} GiB")
    lines, figures, plans, runs = measure(args)
    fio = None
    if args.fio_seconds > 0:
        path = expert_file(args.model)
        fio = fio_bytes_per_second(path, plans[0]["memory"]["slot_bytes"], args.fio_seconds)
    text = render(head, args, lines, figures, plans, runs, fio)
    if args.raw:
        raw_results.write(args.raw,
                          raw_record(head, args, lines, figures, plans, runs, fio))
    if args.output:
        limited_memory.write(args.output, text)
    else:
        sys.stdout.write(text)
    return 0 if all(line.good for line in lines) else 1


if __name__ == "__main__":
    sys.exit(main())
