#!/usr/bin/env python3
"""The table of docs/performance.md, made from benchmarks/results/raw and from nothing else.

    benchmarks/performance_table.py            writes it between the two markers of the document
    benchmarks/performance_table.py --check    says what is wrong with it or with a raw file, and
                                               fails

A row is of one file, hence of one run, one machine and one commit; its file is the newest whose
name ends as ROWS says, after the date. A row that was never measured is left out. Figures are
medians with least and greatest sample.
"""

import glob
import json
import os
import statistics
import subprocess
import sys
from collections import namedtuple

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import compare_llama_bench as compare  # noqa: E402
import raw_results  # noqa: E402

ROOT = raw_results.ROOT
RAW = "benchmarks/results/raw"
DOCUMENT = "docs/performance.md"
BEGIN, END = "<!-- made by benchmarks/performance_table.py -->", "<!-- end of that -->"
HEADER = ["where", "prompt, tokens/s", "decode, tokens/s", "beside it in the same run",
          "decode, share of what the memory gives (bar of CPUs: 0.95)", "commit and raw output"]

# The end of the files' names, what the row is of, and the tests of its two figures.
Row = namedtuple("Row", "name label prompt decode")
ROWS = [
    Row("cpu-2-cores", "8 layers, all in memory", "pp512", "tg64"),
    Row("cpu-2-cores-deep", "the same past depth 4096", "pp4608", "tg32 @ d4096"),
    Row("cpu-2-cores-q4_0", "8 layers, both the same GGUF in Q4_0", "pp512", "tg32"),
    Row("cpu-2-cores-q4_k", "8 layers, the same GGUF in Q4_K, head in Q6_K", "pp512", "tg32"),
    Row("cpu-2-cores-iq4_xs", "8 layers, the same GGUF in IQ4_XS, head in Q6_K", "pp512", "tg32"),
    Row("cpu-16-cores", "40 layers, all in memory", "pp512", "tg32"),
    Row("streaming", "40 layers (18 GB of experts)", "prefill", "decode"),
    Row("gpu", "40 layers, all on the device", "pp4096", "tg64"),
    Row("gpu", "the same past depth 8192", "pp12288", "tg64 @ d8192"),
]


def newest(name, folder):
    """The path of the newest file of that name, or None."""
    found = sorted(glob.glob(os.path.join(folder, f"????-??-??-{name}.json")))
    return found[-1] if found else None


def commits_of(record):
    """The commits that moeflux' results name."""
    return sorted({r["build_commit"] for run in record["runs"] if run["program"] == "moeflux"
                   for r in run["results"]})


def is_of_this_history(commit, root):
    """Whether HEAD has the commit below it; None in a clone that cannot tell."""
    git = ["git", "-C", root]
    if raw_results.output_of([*git, "rev-parse", "--is-shallow-repository"]) != "false":
        return None
    done = subprocess.run([*git, "merge-base", "--is-ancestor", commit, "HEAD"], check=False,
                          stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return done.returncode == 0


def problems(record, root=ROOT):
    """Why a file cannot stand behind figures, in sentences."""
    found = []
    commits = commits_of(record)
    if len(commits) != 1:
        found.append(f"its runs are of the commits {commits}, expected one")
    for commit in commits:
        if is_of_this_history(commit, root) is False:
            found.append(f"commit {commit} is not in the history of HEAD")
    for program in record["programs"]:
        if program.get("sources_differ"):
            found.append(f"the sources of {program['name']} differed from its commit")
        if not program["commit"] or program["commit"] == "unknown":
            found.append(f"{program['name']} does not say its commit")
        if program["build"] is None or not program["build"]["compiler"]:
            found.append(f"the compiler and flags of {program['name']} are not known")
    return found


def samples_of(record, name, test):
    """Tokens per second of a program's samples of a test, as one list a run."""
    return [[float(s) for r in run["results"]
             if compare.name_of(compare.test_of(r)) == test for s in r["samples_ts"]]
            for run in record["runs"] if run["program"] == name]


def figure(samples, test=""):
    """A median with its range, in as many digits as it deserves, behind the name of its test."""
    if not samples:
        return "-"
    digits = 0 if statistics.median(samples) >= 100 else 1 if min(samples) >= 10 else 2
    low, mid, high = (f"{value:.{digits}f}" for value in
                      (min(samples), statistics.median(samples), max(samples)))
    return (f"{test}: " if test else "") + (mid if low == high else f"{mid} ({low} to {high})")


def ratio(record, peer, test):
    text = compare.ratio_cell(samples_of(record, "moeflux", test), samples_of(record, peer, test))
    return None if text == "-" else text


def beside(record, row):
    """The peer's figures, and the ratios."""
    cells = []
    for peer in [p["name"] for p in record["programs"][1:]]:
        both = [(what, ratio(record, peer, test), samples_of(record, peer, test))
                for what, test in (("prompt", row.prompt), ("decode", row.decode))]
        said = [f"{what} {times} times its {figure(sum(samples, []))}"
                for what, times, samples in both if times]
        if said:
            cells.append(f"{peer}: " + ", ".join(said))
    return "; ".join(cells) or "-"


def share_of_bound(record, test):
    shares = [r["share_of_bound"] for run in record["runs"] if run["program"] == "moeflux"
              for r in run["results"] if compare.name_of(compare.test_of(r)) == test]
    return " to ".join(dict.fromkeys(f"{s:.2f}" for s in (min(shares), max(shares)))) or "-"


def where(record):
    """The hardware that computed: of a GPU its name, of a CPU its threads and kernels too."""
    first = next(r for run in record["runs"] if run["program"] == "moeflux"
                 for r in run["results"])
    if first["backends"] != "cpu":
        return "one " + (record["machine"]["gpus"] or [first["device"]])[0].split(",")[0]
    kernels = first["device"].removeprefix("cpu (").split(",")[0]
    return f"{first['n_threads']} cores of {record['machine']['cpu']} ({kernels})"


def streaming_cells(record, row):
    """Figures of streaming.py: its bars say what the drive gives."""
    runs = {run["name"]: run["results"][0] for run in record["runs"]}
    bars = {bar["what"]: bar for bar in record["bars"]}
    ratios = [f"{what}: {bar['ratio']} {of}" for what, of, bar in
              [("prompt", "of what drive and arithmetic give", bars.get(f"prefill of "
                f"{runs[row.prompt]['n_prompt']}")),
               ("decode", "of what the drive gives", bars.get("decode, uniform routing")),
               ("decode", "times our own mmap", bars.get("decode against --expert-io mmap"))]
              if bar]
    limit = record["limit_bytes"] / 2**30
    return [f"{where(record)}, {row.label} in {limit:g} GiB",
            *(figure([result["avg_ts"]], compare.name_of(compare.test_of(result)))
              for result in (runs[row.prompt], runs[row.decode])),
            "; ".join(ratios), "-"]


def cells_of(record, row):
    if record["kind"] == "streaming":
        return streaming_cells(record, row)
    prompt, decode = (sum(samples_of(record, "moeflux", test), [])
                      for test in (row.prompt, row.decode))
    return [f"{where(record)}, {row.label}", figure(prompt, row.prompt),
            figure(decode, row.decode), beside(record, row),
            share_of_bound(record, row.decode) if decode else "-"]


def read(path):
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def table(folder):
    """The markdown between the markers."""
    rows = [HEADER, ["---"] * len(HEADER)]
    for row in ROWS:
        path = newest(row.name, folder)
        if path is None:
            continue
        record = read(path)
        cells = cells_of(record, row)
        if cells[1] == "-" and cells[2] == "-":
            continue
        link = f"[{commits_of(record)[0]}](../{RAW}/{os.path.basename(path)})"
        rows.append([*cells, link])
    if len(rows) == 2:
        return "No run of a commit of this history has been kept.\n"
    return "".join("| " + " | ".join(cells) + " |\n" for cells in rows)


def split(text):
    """The text before the table, the table, and the text behind it."""
    before, begin, rest = text.partition(BEGIN + "\n")
    found, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{DOCUMENT}: expected the lines {BEGIN} and {END}")
    return before + begin, found, end + after


def complaints(root=ROOT):
    """The faults of the table and of the files behind it."""
    folder = os.path.join(root, RAW)
    found = [f"{os.path.basename(path)}: {problem}"
             for path in sorted(glob.glob(os.path.join(folder, "*.json")))
             for problem in problems(read(path), root)]
    with open(os.path.join(root, DOCUMENT), encoding="utf-8") as file:
        if split(file.read())[1] != table(folder):
            found.append(f"{DOCUMENT}: its table of speeds is not what {RAW} gives; run "
                         "benchmarks/performance_table.py")
    return found


def main(arguments, root=ROOT):
    if arguments == ["--check"]:
        found = complaints(root)
        print("\n".join(found), file=sys.stderr, end="\n" if found else "")
        return 1 if found else 0
    if arguments:
        sys.exit(__doc__)
    path = os.path.join(root, DOCUMENT)
    with open(path, encoding="utf-8") as file:
        before, _, after = split(file.read())
    with open(path, "w", encoding="utf-8") as file:
        file.write(before + table(os.path.join(root, RAW)) + after)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
