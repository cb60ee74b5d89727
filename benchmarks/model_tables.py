#!/usr/bin/env python3
"""The tables of docs/models.md: what every model that is known by name needs, and how fast it is.

    benchmarks/model_tables.py build/release/bin/moeflux             writes them into docs/models.md
    benchmarks/model_tables.py build/release/bin/moeflux --check     fails where they differ

Figures are what `moeflux plan` predicts for the machines below. Every speed of theirs is given and
weights take what they take for portable kernels, so all processors give the same figures.
"""

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
DOCUMENT = os.path.join(ROOT, "docs", "models.md")
GIB = 2**30

# Memory in GB of a machine, and what of it is left to a model.
MACHINES = {8: "6G", 16: "14G", 32: "29G", 64: "60G"}
HOST = {"drive": 3, "memory-bandwidth": 50}
CPU = {**HOST, "arithmetic": 400}
GPU = {**HOST, "vram": "11G", "vram-bandwidth": 330, "pcie": 22}

# Columns that hold no numbers.
TEXT = ("name", "repository", "without a GPU", "with a GPU of 12 GB")

# Where each configuration is published.
REPOSITORIES = {
    "ax-k1": "skt/A.X-K1",
    "ax-k2-light": "skt/A.X-K2-Light",
    "beam-1.0-501b-a23b": "reflection/Beam-1.0-501B-A23B",
    "cogito-v2-671b": "deepcogito/cogito-v2-preview-deepseek-671B-MoE",
    "deepseek-v2": "deepseek-ai/DeepSeek-V2-Chat",
    "deepseek-v2-lite": "deepseek-ai/DeepSeek-V2-Lite-Chat",
    "deepseek-v3": "deepseek-ai/DeepSeek-V3",
    "deepseek-v3.2": "deepseek-ai/DeepSeek-V3.2",
    "deepseek-v4-flash": "deepseek-ai/DeepSeek-V4-Flash",
    "deepseek-v4-pro": "deepseek-ai/DeepSeek-V4-Pro",
    "deepseek-v4.1-flash": "deepseek-ai/DeepSeek-V4.1-Flash",
    "dots.llm1": "rednote-hilab/dots.llm1.inst",
    "dots3-note-prev": "dots-studio/dots3-note-prev",
    "ernie-4.5-21b-a3b": "baidu/ERNIE-4.5-21B-A3B-PT",
    "ernie-4.5-300b-a47b": "baidu/ERNIE-4.5-300B-A47B-PT",
    "flint-40b-a2.8b": "RecursiveSI/flint",
    "gemma-4-31b": "google/gemma-4-31B-it",
    "glm-4.5": "zai-org/GLM-4.5",
    "glm-4.5-air": "zai-org/GLM-4.5-Air",
    "glm-4.7-flash": "zai-org/GLM-4.7-Flash",
    "glm-5": "zai-org/GLM-5",
    "glm-5.2": "zai-org/GLM-5.2",
    "glm-5.3-flash": "zai-org/GLM-5.3-Flash",
    "gpt-oss-120b": "openai/gpt-oss-120b",
    "gpt-oss-20b": "openai/gpt-oss-20b",
    "granite-4.0-h-small": "ibm-granite/granite-4.0-h-small",
    "granite-4.0-h-tiny": "ibm-granite/granite-4.0-h-tiny",
    "granite-swash-2b": "ibm-granite/granite-swash-2b",
    "hy3": "tencent/Hy3",
    "hy4-preview": "tencent/Hy4-preview",
    "inkling": "thinkingmachines/Inkling",
    "inkling-2-mini": "thinkingmachines/Inkling-2-Mini",
    "inkling-2-small": "thinkingmachines/Inkling-2-Small-MXFP8",
    "inkling-small": "thinkingmachines/Inkling-Small",
    "k-exaone-236b-a23b": "LGAI-EXAONE/K-EXAONE-236B-A23B",
    "kimi-k2": "moonshotai/Kimi-K2-Instruct",
    "kimi-k2.5": "moonshotai/Kimi-K2.5",
    "kimi-k3": "moonshotai/Kimi-K3",
    "kimi-linear-48b-a3b": "moonshotai/Kimi-Linear-48B-A3B-Instruct",
    "kolibri-1-78b-a3.8b": "Aleph-Alpha/Kolibri-1",
    "laguna-s-2.1": "poolside/Laguna-S-2.1",
    "laguna-xs.2": "poolside/Laguna-XS.2",
    "lara-4-mini": "translated/Lara-4-Mini-Base",
    "lfm2-8b-a1b": "LiquidAI/LFM2-8B-A1B",
    "ling-3.0-flash": "inclusionAI/Ling-3.0-flash",
    "ling-3.0-tiny": "inclusionAI/Ling-3.0-tiny",
    "llama-3.1-8b": "meta-llama/Llama-3.1-8B-Instruct",
    "llama-3.2-3b": "meta-llama/Llama-3.2-3B-Instruct",
    "llama-4-maverick": "meta-llama/Llama-4-Maverick-17B-128E-Instruct",
    "llama-4-scout": "meta-llama/Llama-4-Scout-17B-16E-Instruct",
    "mellum2-12b-a2.5b": "JetBrains/Mellum2-12B-A2.5B-Base",
    "minimax-m2": "MiniMaxAI/MiniMax-M2",
    "minimax-m3": "MiniMaxAI/MiniMax-M3",
    "ministral-3-8b": "mistralai/Ministral-3-8B-Instruct-2512",
    "mistral-7b-v0.1": "mistralai/Mistral-7B-Instruct-v0.1",
    "mistral-large-4": "mistralai/Mistral-Large-4-1T-A52B",
    "mixtral-8x22b": "mistralai/Mixtral-8x22B-Instruct-v0.1",
    "mixtral-8x7b": "mistralai/Mixtral-8x7B-Instruct-v0.1",
    "muse-glimmer-30b": "meta-models/Muse-Glimmer-30B",
    "muse-spark-816b-a42b": "meta-models/Muse-Spark-Open-816B-A42B",
    "nemotron-3-nano-30b-a3b": "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16",
    "nemotron-3-super-120b-a12b": "nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-BF16",
    "olmoe-1b-7b": "allenai/OLMoE-1B-7B-0924-Instruct",
    "qwen3-235b-a22b": "Qwen/Qwen3-235B-A22B",
    "qwen3-30b-a3b": "Qwen/Qwen3-30B-A3B",
    "qwen3-4b-2507": "Qwen/Qwen3-4B-Instruct-2507",
    "qwen3-8b": "Qwen/Qwen3-8B",
    "qwen3-coder-480b-a35b": "Qwen/Qwen3-Coder-480B-A35B-Instruct",
    "qwen3-next-80b-a3b": "Qwen/Qwen3-Next-80B-A3B-Instruct",
    "qwen3-vl-30b-a3b": "Qwen/Qwen3-VL-30B-A3B-Instruct",
    "qwen3.5-122b-a10b": "Qwen/Qwen3.5-122B-A10B",
    "qwen3.5-35b-a3b": "Qwen/Qwen3.5-35B-A3B",
    "qwen3.5-397b-a17b": "Qwen/Qwen3.5-397B-A17B",
    "qwen3.6-35b-a3b": "Qwen/Qwen3.6-35B-A3B",
    "qwen3.8-27b": "Qwen/Qwen3.8-27B",
    "qwen3.8-flash-next": "Qwen/Qwen3.8-Flash-Next",
    "sarvam-105b": "sarvamai/sarvam-105b",
    "sarvam-30b": "sarvamai/sarvam-30b",
    "smollm3-3b": "HuggingFaceTB/SmolLM3-3B",
    "solar-open-100b": "upstage/Solar-Open-100B",
    "step-3.5-flash": "stepfun-ai/Step-3.5-Flash",
    "trinity-large": "arcee-ai/Trinity-Large-Preview",
    "trinity-mini": "arcee-ai/Trinity-Mini",
    "zaya1-8b": "Zyphra/ZAYA1-8B",
}


def names_of(program):
    """The names of published models that `plan --like` takes."""
    listed = subprocess.run([program, "synth", "--list"], check=True, capture_output=True,
                            text=True).stdout
    names = [line.split()[0] for line in listed.splitlines() if line.strip()]
    return [name for name in names if not name.startswith("tiny")]


def plan(program, name, options):
    """The prediction of plan, as JSON."""
    command = [program, "plan", "--json", "--device", "cpu", "--cpu-isa", "portable",
               "--like", name]
    for option, value in options.items():
        command += [f"--{option}", str(value)]
    return json.loads(subprocess.run(command, check=True, capture_output=True).stdout)


def speed(value):
    return f"{value:.0f}" if value >= 9.5 else f"{value:.1f}"


def cell(found):
    """The tokens a second of natural text, from worst to best."""
    if not found["memory"]["fits"]:
        return "-"
    decode = found["decode"]
    low, high = (speed(decode[f"natural_{end}"]["tokens_per_second"]) for end in ("low", "high"))
    return low if low == high else f"{low} to {high}"


def gib(count):
    return f"{count / GIB:.0f}" if count >= 9.5 * GIB else f"{count / GIB:.1f}"


def row_of(program, name):
    """A row of each table, behind what it is sorted by."""
    of_cpu = [plan(program, name, {**CPU, "ram": ram}) for ram in MACHINES.values()]
    of_gpu = [plan(program, name, {**GPU, "ram": ram}) for ram in MACHINES.values()]
    memory = of_cpu[0]["memory"]
    total = memory["experts_bytes"] + memory["dense_bytes"]
    link = f"[{REPOSITORIES[name]}](https://huggingface.co/{REPOSITORIES[name]})"
    table_bytes = memory.get("table_bytes_on_drive", 0)
    size = gib(total) + (f" + {gib(table_bytes)}" if table_bytes else "")
    return total, {
        "sizes": [f"`{name}`", link, size, gib(memory["dense_bytes"])],
        "cpu": [f"`{name}`", *map(cell, of_cpu)],
        "gpu": [f"`{name}`", *map(cell, of_gpu)]}


def markdown(header, rows):
    lines = [header, ["---" if name in TEXT else "---:" for name in header], *rows]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


def tables(program):
    """The text between the markers of each table."""
    names = names_of(program)
    missing = sorted(set(names) ^ set(REPOSITORIES))
    if missing:
        sys.exit(f"model_tables.py: {', '.join(missing)}: expected in REPOSITORIES and in "
                 "`synth --list` alike")
    with ThreadPoolExecutor(2) as pool:
        rows = [row for _, row in sorted(pool.map(lambda name: row_of(program, name), names),
                                         key=lambda found: found[0])]
    sizes = [f"{machine} GB" for machine in MACHINES]
    return {
        "sizes": markdown(["name", "repository", "all, GiB", "always in memory, GiB"],
                          [row["sizes"] for row in rows]),
        "cpu": markdown(["without a GPU", *sizes], [row["cpu"] for row in rows]),
        "gpu": markdown(["with a GPU of 12 GB", *sizes], [row["gpu"] for row in rows])}


def with_tables(text, made):
    """The document with the tables between its markers replaced."""
    for name, table in made.items():
        begin = f"<!-- {name}: made by benchmarks/model_tables.py -->\n"
        end = f"<!-- end of {name} -->"
        before, found, rest = text.partition(begin)
        _, closed, after = rest.partition(end)
        if not found or not closed:
            sys.exit(f"docs/models.md: expected the lines {begin.strip()} and {end}")
        text = before + begin + table + end + after
    return text


def main(arguments):
    if not arguments or arguments[1:] not in ([], ["--check"]):
        sys.exit(__doc__)
    with open(DOCUMENT, encoding="utf-8") as file:
        text = file.read()
    made = with_tables(text, tables(arguments[0]))
    if arguments[1:]:
        if made != text:
            print("docs/models.md: its tables are not what plan predicts; run "
                  "benchmarks/model_tables.py", file=sys.stderr)
        return 1 if made != text else 0
    with open(DOCUMENT, "w", encoding="utf-8") as file:
        file.write(made)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
