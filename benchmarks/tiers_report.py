#!/usr/bin/env python3
"""Short tables of what benchmarks/tiers.sh measured.

    benchmarks/tiers_report.py bench FILE.json     of moeflux bench
    benchmarks/tiers_report.py peer FILE.json      of llama-bench
    benchmarks/tiers_report.py same A B            whether two files of moeflux logits hold the same
                                                   numbers: their headers name the devices
"""

import json
import re
import statistics
import sys


def test_name(result):
    # llama-bench's label of tokens generated behind a prompt that is not timed.
    behind = re.fullmatch(r"(tg\d+)@pp(\d+)", result.get("test", ""))
    if behind:
        return "@".join(behind.groups())
    prompt = result["n_prompt"]
    name = f"pp{prompt}" if prompt else f"tg{result['n_gen']}"
    depth = result.get("n_depth")
    return f"{name}@{depth}" if depth else name


def speeds(result):
    """Median, least and greatest of the repetitions."""
    samples = result["samples_ts"]
    return f"{statistics.median(samples):9.2f} ({min(samples):.2f} to {max(samples):.2f})"


def near_cache(result):
    asked = result["near_cache_bytes"]
    return "auto" if asked is None else f"{asked / 2**20:.0f}M"


def bench(results):
    """A line a row; behind plan auto what it reaches of the best other plan of its cell."""
    best = {}
    for result in results:
        if result["plan"] not in ("auto", "resident"):
            cell = (result["near_cache_bytes"], test_name(result))
            best[cell] = max(best.get(cell, 0.0), statistics.median(result["samples_ts"]))
    for result in results:
        line = f"{test_name(result):>8} {result['precision']}"
        if result["plan"]:
            line = (f"{test_name(result):>8}  near {near_cache(result):>6}  "
                    f"{result['plan']:<8}")
        line += f" {speeds(result)} tokens/s"
        if result["plan"]:
            line += (f", near {100 * result['near_hit_rate']:.1f} %, bus "
                     f"{result['bus_bytes_per_token'] / 1e6:.0f} MB/token, "
                     f"{result['promotions']} brought, {result['helped_steps']} helped")
        else:
            line += f", {result['bytes_per_second'] / 1e9:.1f} GB/s"
        rival = best.get((result["near_cache_bytes"], test_name(result)))
        if result["plan"] == "auto" and rival:
            line += f", {statistics.median(result['samples_ts']) / rival:.3f} of the best"
        print(line)


def peer(results):
    for result in results:
        how = result.get("tensor_buft_overrides", "none")
        if how in ("", "none"):
            how = f"-sm {result.get('split_mode')}"
        print(f"{test_name(result):>8}  {how} {speeds(result)} tokens/s")


def numbers(path):
    """The bytes behind a safetensors file's header."""
    with open(path, "rb") as file:
        header_bytes = int.from_bytes(file.read(8), "little")
        file.seek(header_bytes, 1)
        return file.read()


def same(first, second):
    a, b = numbers(first), numbers(second)
    if a == b and a:
        return 0
    different = sum(x != y for x, y in zip(a, b)) + abs(len(a) - len(b))
    print(f"{different} of {len(a)} bytes differ")
    return 1


if __name__ == "__main__":
    if len(sys.argv) == 4 and sys.argv[1] == "same":
        sys.exit(same(sys.argv[2], sys.argv[3]))
    if len(sys.argv) != 3 or sys.argv[1] not in ("bench", "peer"):
        sys.exit(__doc__)
    with open(sys.argv[2], encoding="utf-8") as file:
        text = file.read()
    # A peer's libraries may say something first.
    begin = re.search(r"^\[", text, re.MULTILINE)
    (bench if sys.argv[1] == "bench" else peer)(json.loads(text[begin.start() if begin else 0 :]))
