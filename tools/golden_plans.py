#!/usr/bin/env python3
"""Writes what `moeflux plan` predicts for the machines of tests/golden/machines.

    tools/golden_plans.py build/release/bin/moeflux

Run it when a planner or a cost model has changed on purpose, and review what it changes: each
figure that moves is a prediction that moves. GoldenPlans.* compares; PlanAnchors.* holds the model
to what was measured.
"""

import glob
import json
import os
import subprocess
import sys

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
FOLDER = os.path.join(ROOT, "tests", "golden", "machines")


def rounded(value):
    """Six digits: what machines compute alike."""
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, dict):
        return {key: rounded(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [rounded(inner) for inner in value]
    return value


def step(found):
    names = ("tokens", "near_share", "far_share", "drive_share", "tokens_per_second", "limit")
    return {name: found[name] for name in names}


def plan(program, options, model):
    command = [program, "plan", "--json", "--like", model]
    for name, value in options.items():
        command += [f"--{name}", str(value)]
    found = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    names = ("dense_bytes", "scratch_bytes", "fits")
    kept = {"memory": {name: found["memory"][name] for name in names}}
    if "decode" in found:
        kept["experts"] = found["experts"]
        kept["decode"] = {name: step(inner) for name, inner in found["decode"].items()}
        kept["prompts"] = [step(inner) for inner in found["prompts"]]
    return rounded(kept)


def write(path, golden):
    """A line for each part of a plan, so that a diff shows which one has moved."""
    lines = ["{", f' "machine": {json.dumps(golden["machine"])},',
             f' "options": {json.dumps(golden["options"])},', ' "plans": {']
    for m, (model, parts) in enumerate(golden["plans"].items()):
        lines.append(f'  "{model}": {{')
        members = list(parts.items())
        for i, (name, value) in enumerate(members):
            comma = "," if i + 1 < len(members) else ""
            if name in ("decode", "prompts"):
                opening, closing = ("{", "}") if name == "decode" else ("[", "]")
                entries = ([f'"{key}": {json.dumps(inner)}' for key, inner in value.items()]
                           if name == "decode" else [json.dumps(inner) for inner in value])
                lines.append(f'   "{name}": {opening}')
                lines += ["    " + entry + ("," if e + 1 < len(entries) else "")
                          for e, entry in enumerate(entries)]
                lines.append(f"   {closing}{comma}")
            else:
                lines.append(f'   "{name}": {json.dumps(value)}{comma}')
        lines.append("  }" + ("," if m + 1 < len(golden["plans"]) else ""))
    lines += [" }", "}"]
    with open(path, "w", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n")


def main():
    for path in sorted(glob.glob(os.path.join(FOLDER, "*.json"))):
        with open(path, encoding="utf-8") as file:
            golden = json.load(file)
        golden["plans"] = {model: plan(sys.argv[1], golden["options"], model)
                           for model in golden["plans"]}
        write(path, golden)


if __name__ == "__main__":
    main()
