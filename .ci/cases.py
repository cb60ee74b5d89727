#!/usr/bin/env python3
"""How many cases each test program has, in .ci/cases, and what a run may lose of them.

    .ci/cases.py            compares the list with what build/release has
    .ci/cases.py --write    writes the list anew from it; no case is run for that

A line of the list is a program and how many cases it had. A case counts that passed or was skipped
for absent hardware: so the counts are the same on every machine. Disabled cases do not count.
"""

import json
import os
import subprocess
import sys

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), ".."))
PATH = os.path.join(ROOT, ".ci", "cases")
BUILD = "build/release"
# All cases of scripts and of programs that are not ours together.
SCRIPTS = "scripts"
ANEW = "write the list anew: make cases"


def listing_command(build=BUILD):
    return ["ctest", "--test-dir", build, "--show-only=json-v1"]


def read_listing(text):
    """The (case, program) pairs that ctest's JSON lists; none if it is no JSON."""
    return [(name, program) for _, name, program in read_numbers(text)]


def read_numbers(text):
    """(ctest's number, case, program) of the same."""
    begin = text.find("{")
    try:
        tests = json.loads(text[begin:])["tests"] if begin >= 0 else []
    except (ValueError, KeyError):
        return []
    disabled = {"name": "DISABLED", "value": True}
    return [(number, test["name"], program_of(test)) for number, test in enumerate(tests, 1)
            if disabled not in test.get("properties", [])]


def program_of(test):
    """The program of ours that a test calls; SCRIPTS where it calls another."""
    if "command" not in test:
        return test["name"]  # CMake lists a program that was not built so
    folder, program = os.path.split(test["command"][0])
    return program if folder.endswith(f"/{BUILD}/bin") else SCRIPTS


def count(pairs, counted):
    """Cases by program of the listed ones, of those whose names `counted` holds, as often as it
    does: two programs may have a case of one name."""
    left = {}
    for name in counted:
        left[name] = left.get(name, 0) + 1
    programs = {program: 0 for _, program in pairs}
    for name, program in pairs:
        if left.get(name, 0) > 0:
            left[name] -= 1
            programs[program] += 1
    return programs


def read_list(path=PATH):
    """Cases by program; none if there is no such file."""
    if not os.path.exists(path):
        return {}
    with open(path, encoding="ascii") as file:
        lines = [line.split() for line in file if line.strip()]
    return {program: int(cases) for program, cases in lines}


def write_list(programs, path=PATH):
    with open(path, "w", encoding="ascii") as file:
        file.writelines(f"{program} {cases}\n" for program, cases in sorted(programs.items()))


def floor_of(cases):
    """The fewest cases of a program that had `count`: losing a tenth of them is too much."""
    return cases - -(-cases // 10) + 1


def floor_of_all(programs):
    total = sum(programs.values())
    return total - total // 200


def judge(programs, listed):
    """(note, problems) of cases that ran by program, against the list."""
    problems = []
    for program, cases in sorted(listed.items()):
        ran = programs.get(program, 0)
        if ran < floor_of(cases):
            problems.append(f"{program}: {ran} cases, expected at least {floor_of(cases)} of the "
                            f"{cases} in .ci/cases")
    for program in sorted(set(programs) - set(listed)):
        problems.append(f"{program}: not in .ci/cases; {ANEW}")
    total = sum(programs.values())
    floor = floor_of_all(listed)
    if total < floor:
        problems.append(f"{total} cases in all, expected at least {floor}")
    elif floor * 100 < total * 98:
        problems.append(f"{total} cases in all, and the list would let {total - floor} of them be "
                        f"lost, more than two in a hundred; {ANEW}")
    return f"{total} cases in {len(programs)} programs, at least {floor}", problems


def summary(programs, width=100):
    """Lines of `program cases`."""
    lines = [""]
    for program, cases in sorted(programs.items()):
        word = f"{program} {cases}"
        if lines[-1] and len(lines[-1]) + 2 + len(word) > width:
            lines.append("")
        lines[-1] += (", " if lines[-1] else "") + word
    return [line for line in lines if line]


def main(arguments):
    if arguments not in ([], ["--write"]):
        print(__doc__.strip(), file=sys.stderr)
        return 2
    done = subprocess.run(listing_command(), cwd=ROOT, stdout=subprocess.PIPE, text=True,
                          check=False)
    pairs = read_listing(done.stdout)
    missing = [name for name, program in pairs if name == program]
    if not pairs or missing:
        print(f"cases: {BUILD} has no test programs {' '.join(missing)}: build it first",
              file=sys.stderr)
        return 1
    programs = count(pairs, [name for name, _ in pairs])
    if arguments:
        write_list(programs)
    note, problems = judge(programs, read_list())
    print("\n".join(summary(programs) + problems + [note]))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
