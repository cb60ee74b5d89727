#!/usr/bin/env python3
"""Short tables of what benchmarks/cuda.sh measured.

    benchmarks/cuda_report.py bench FILE.json     of moeflux bench
    benchmarks/cuda_report.py profile FILE.csv    of ncu with gpu__time_duration.sum
"""

import collections
import csv
import json
import sys

MICROSECONDS = {"ns": 1e-3, "nsecond": 1e-3, "us": 1, "usecond": 1, "ms": 1e3, "msecond": 1e3}


def bench(path):
    with open(path, encoding="utf-8") as file:
        for result in json.load(file):
            prompt, generated = result.get("n_prompt"), result.get("n_gen")
            name = f"pp{prompt}" if prompt else f"tg{generated}"
            if result.get("n_parallel"):
                name += f" x{result['n_parallel']}"
            print(f"{name} @ d{result.get('n_depth')}: {result.get('avg_ts'):.1f} tokens/s "
                  f"+/- {result.get('stddev_ts'):.1f}",
                  {key: value for key, value in result.items()
                   if "bandwidth" in key or "bound" in key})


def profile(path):
    with open(path, encoding="utf-8") as file:
        rows = [row for row in csv.reader(file) if len(row) > 10]
    if not rows:
        print("no launches: see profile.log")
        return
    head = rows[0]
    name, value, unit = (head.index(key) for key in ("Kernel Name", "Metric Value", "Metric Unit"))
    total, count = collections.Counter(), collections.Counter()
    for row in rows[1:]:
        if len(row) != len(head):
            continue
        kernel = row[name].split("(")[0]
        total[kernel] += float(row[value].replace(",", "")) * MICROSECONDS[row[unit]]
        count[kernel] += 1
    print(f"{sum(count.values())} launches, {sum(total.values()):.0f} us")
    for kernel, time in total.most_common(24):
        print(f"{kernel:36} {count[kernel]:5} launches {time:9.1f} us "
              f"{time / count[kernel]:7.2f} us each")


if __name__ == "__main__":
    if len(sys.argv) != 3 or sys.argv[1] not in ("bench", "profile"):
        sys.exit(__doc__)
    (bench if sys.argv[1] == "bench" else profile)(sys.argv[2])
