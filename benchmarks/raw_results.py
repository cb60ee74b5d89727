#!/usr/bin/env python3
"""Keeps a benchmark's raw output: one JSON file a run, with the machine and the programs.

    raw_results.py BENCH.json RAW.json --moeflux build/release/bin/moeflux [--title TEXT]

keeps what `moeflux bench -o json` printed. compare_llama_bench.py and streaming.py write such files
with --raw. Files go to benchmarks/results/raw/YYYY-MM-DD-NAME.json; README's table is made of them
(performance_table.py). Folders of the machine are left out; everything else is as it was printed.
"""

import argparse
import datetime
import glob
import json
import os
import platform
import re
import shlex
import subprocess
import sys

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), ".."))
# The program's sources: where these differ from a commit, it is not that commit's program.
SOURCES = ["CMakeLists.txt", "CMakePresets.json", "cmake", "include", "src"]
THREAD_VARIABLES = r"(OMP|GOMP|KMP|GGML|NUMA)_.*"


def text_of(path):
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def output_of(command):
    """The output of a command; None when it cannot be run or fails."""
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              errors="replace", check=False)
    except OSError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def load_average():
    return [round(value, 2) for value in os.getloadavg()]


def machine():
    def first(path, key, otherwise):
        found = re.search(rf"^{key}\s*:\s*(.+)$", text_of(path), re.MULTILINE)
        return found.group(1).strip() if found else otherwise
    gpus = output_of(["nvidia-smi", "--query-gpu=name,driver_version,memory.total",
                      "--format=csv,noheader"])
    return {"cpu": first("/proc/cpuinfo", "model name", platform.processor() or "unknown"),
            "cpus": os.cpu_count(),
            "memory": first("/proc/meminfo", "MemTotal", "unknown"),
            "kernel": f"{platform.system()} {platform.release()}",
            "gpus": gpus.splitlines() if gpus else [],
            "load_average": load_average()}


def machine_line(found):
    """The machine in a line of text."""
    gpus = "".join(f", {gpu}" for gpu in found["gpus"])
    loads = " ".join(str(load) for load in found["load_average"])
    return (f"{found['cpu']}, {found['cpus']} CPUs, {found['memory']}, {found['kernel']}{gpus}, "
            f"load average {loads} at the start")


def placement(prefix):
    """The CPUs and the variables that a program run behind `prefix` has for its threads."""
    script = ("import json, os, re\n"
              "cpus = getattr(os, 'sched_getaffinity', lambda _: [])(0)\n"
              f"names = [n for n in os.environ if re.fullmatch(r'{THREAD_VARIABLES}', n)]\n"
              "print(json.dumps({'cpus': sorted(cpus),"
              " 'variables': {n: os.environ[n] for n in sorted(names)}}))")
    found = output_of([*prefix, sys.executable, "-c", script])
    return {"prefix": shlex.join(prefix), **(json.loads(found) if found else {})}


def build_folder(program):
    """The CMake folder above a program; None for one that was not built here."""
    folder = os.path.dirname(os.path.realpath(program))
    while not os.path.exists(os.path.join(folder, "CMakeCache.txt")):
        if folder == os.path.dirname(folder):
            return None
        folder = os.path.dirname(folder)
    return folder


def compiler_of(folder, language):
    for path in glob.glob(f"{folder}/CMakeFiles/*/CMake{language}Compiler.cmake"):
        found = dict(re.findall(rf'set\(CMAKE_{language}_COMPILER_(ID|VERSION) "([^"]+)"\)',
                                text_of(path)))
        if len(found) == 2:
            return f"{found['ID']} {found['VERSION']}"
    return None


def nvcc_of(cache):
    """The nvcc that cmake/cuda.cmake found, which CMake itself knows nothing of."""
    if cache.get("MOEFLUX_CUDA") not in ("ON", "TRUE", "1"):
        return None
    version = output_of([cache.get("MOEFLUX_NVCC", "nvcc"), "--version"]) or ""
    found = re.search(r"\bV([\d.]+)", version)
    return f"NVIDIA {found.group(1)}" if found else "NVIDIA, version unknown"


def build_of(program):
    """Compilers, flags and options that a program was built with, from its CMake folder."""
    folder = build_folder(program)
    if folder is None:
        return None
    cache = dict(re.findall(r"^([\w-]+):\w+=(.*)$", text_of(os.path.join(folder, "CMakeCache.txt")),
                            re.MULTILINE))
    kind = cache.get("CMAKE_BUILD_TYPE", "")
    flags = [cache.get(name, "") for name in ("CMAKE_CXX_FLAGS", f"CMAKE_CXX_FLAGS_{kind.upper()}")]
    commands = text_of(os.path.join(folder, "compile_commands.json"))
    options = [name for name, value in cache.items()
               if re.match("GGML_|LLAMA_|MOEFLUX_", name) and value in ("ON", "TRUE", "1")]
    build = {"type": kind, "compiler": compiler_of(folder, "CXX"),
             "flags": " ".join(" ".join(flags).split()),
             "machine_flags": sorted(set(re.findall(r" (-m[\w.=+-]+)", commands))),
             "options": sorted(options)}
    cuda = compiler_of(folder, "CUDA") or nvcc_of(cache)
    if cuda:
        build["cuda_compiler"] = cuda
        build["cuda_architectures"] = (cache.get("MOEFLUX_CUDA_ARCHITECTURES")
                                       or cache.get("CMAKE_CUDA_ARCHITECTURES", "unknown"))
    return build


def build_line(build):
    """A build in a line of text."""
    if build is None:
        return "built elsewhere"
    words = [build["compiler"] or "unknown compiler", build["type"], build["flags"],
             *build["machine_flags"], *build["options"]]
    if "cuda_compiler" in build:
        words.append(f"CUDA {build['cuda_compiler']} for {build['cuda_architectures']}")
    return " ".join(word for word in words if word)


def sources_differ(commit, root=ROOT):
    """Whether the sources here are other than a commit's; None when git cannot tell."""
    git = ["git", "-C", root]
    if output_of([*git, "cat-file", "-e", f"{commit}^{{commit}}"]) is None:
        return None
    if output_of([*git, "diff", "--quiet", commit, "--", *SOURCES]) is None:
        return True
    return bool(output_of([*git, "ls-files", "--others", "--exclude-standard", "--", *SOURCES]))


def without_folders(results):
    """Results that name their models without the folders of this machine."""
    return [{key: os.path.basename(value.rstrip("/")) if key == "model_filename" else value
             for key, value in result.items()} for result in results]


def shown(command):
    """A command without the folders of this machine."""
    return shlex.join(os.path.basename(w.rstrip("/")) if os.path.isabs(w) else w for w in command)


def program_record(name, program, commit):
    """The record of a program that ran; `commit` is what it says of itself."""
    record = {"name": name, "commit": commit, "build": build_of(program)}
    if name == "moeflux":
        record["sources_differ"] = sources_differ(commit)
    return record


def started(kind, title):
    """The first fields of every file."""
    now = datetime.datetime.now(datetime.timezone.utc)
    return {"kind": kind, "title": title, "started": now.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "machine": machine()}


def write(path, record):
    """A line for every field, program and run."""
    fields = []
    for name, value in record.items():
        text = json.dumps(value, ensure_ascii=False)
        if isinstance(value, list) and value:
            text = "[\n  " + ",\n  ".join(json.dumps(v, ensure_ascii=False) for v in value) + "\n ]"
        fields.append(f' "{name}": {text}')
    os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        file.write("{\n" + ",\n".join(fields) + "\n}\n")


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("bench", help="what moeflux bench -o json printed")
    parser.add_argument("raw", help="the file to write")
    parser.add_argument("--moeflux", required=True, help="the program that printed it")
    parser.add_argument("--title", default="")
    parser.add_argument("--command", default="", help="how it was called")
    args = parser.parse_args(arguments)
    results = json.loads(text_of(args.bench))
    record = {**started("bench", args.title), "placement": placement([]),
              "programs": [program_record("moeflux", args.moeflux, results[0]["build_commit"])],
              "runs": [{"program": "moeflux", "round": 1, "command": args.command,
                        "results": without_folders(results)}]}
    write(args.raw, record)


if __name__ == "__main__":
    main(sys.argv[1:])
