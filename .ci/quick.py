#!/usr/bin/env python3
"""Checks that a change breaks most likely, in minutes where the build folders are there.

    .ci/quick.py [BASE]

Checks format, layers and house rules. Builds everything of the release with its benchmarks and
-Werror, the extension with CUDA where nvcc is installed, and the threaded programs for
ThreadSanitizer. Runs the tests of the modules and folders that differ from BASE (default: the
branch that this one left). The last lines say how long each took. `.ci/run` is what counts.
"""

import os
import re
import subprocess
import sys
import tempfile

import areas
import cases
import parts

# Scripts whose tests a file belongs to, where no folder says so: pattern of the file, of the case.
SCRIPTS = ((r"^(tools|\.ci)/", r"(_selftest|^tidy|^check_layers|^class_sizes)$"),
           (r"^src/serve/", r"^serve_"),
           (r"^(python|include|src/library)/", r"^(python(_example)?|same_text|install_library)$"),
           (r"^src/cli/", r"^(option_names|chat_.*)$"), (r"^rust/", r"^rust$"))


def changed_files(base):
    """Tracked and new files that differ from a commit."""
    names = parts.git(parts.ROOT, "diff", "--name-only", base) or ""
    new = parts.git(parts.ROOT, "ls-files", "--others", "--exclude-standard") or ""
    return sorted(set(names.split("\n") + new.split("\n")) - {""})


def suites_of(file):
    """Suites that a source of tests/ has, of programs with more cases than a change needs."""
    path = os.path.join(parts.ROOT, file)
    if not re.fullmatch(r"tests/.*_test\.cc", file) or not os.path.exists(path):
        return []
    with open(path, encoding="utf-8") as source:
        return sorted(set(re.findall(r"^TEST(?:_[FP])?\((\w+),", source.read(), re.MULTILINE)))


def family_of(file):
    """The name, in cases, of what a family's source or a reference checkpoint is for."""
    found = re.match(r"(?:src/model/families|tests/golden/\w+)/(\w+)[./]", file)
    return found[1] if found else None


def programs_of(files, known):
    """The test programs of the modules that files belong to: src/NAME has NAME_test."""
    found = set()
    for file in files:
        if suites_of(file) or file.startswith("tests/golden/"):
            continue
        folders = os.path.dirname(file).split("/")
        for depth in range(len(folders), 0, -1):
            name = "_".join(folders[1:depth]) + "_test"
            if folders[0] in ("src", "tests") and name in known:
                found.add(name)
                break
    return sorted(found)


def chosen_cases(files, pairs):
    """(case, program) that are to run: of changed modules, suites, families and scripts."""
    programs = programs_of(files, {program for _, program in pairs})
    patterns = [case for file, case in SCRIPTS if any(re.search(file, f) for f in files)]
    patterns += [rf"(^|/){suite}\." for file in files for suite in suites_of(file)]
    names = {family_of(file) for file in files} - {None}
    patterns += [rf"/{name}(?![a-z0-9])" for name in sorted(names)]
    # tests/FOLDER/NAME_test.py is a case FOLDER_NAME, NAME or NAME_selftest; fuzz/NAME_fuzz.cc and
    # fuzz/corpus/NAME/ are one too.
    for file in files:
        if script := re.fullmatch(r"tests/(?:.*/)?(\w+)/(\w+?)(?:_test)?\.(?:py|sh)", file):
            patterns.append(f"^({script[1]}_)?{script[2]}(_selftest)?$")
        if target := re.match(r"fuzz/(?:(\w+)_fuzz\.cc|corpus/(\w+)/)", file):
            patterns.append(f"^fuzz_replay_{target[1] or target[2]}$")
    wanted = re.compile("|".join(f"(?:{pattern})" for pattern in patterns) or r"(?!)")
    return programs, {(name, program) for name, program in pairs
                      if program in programs or wanted.search(name)}


def run_cases(runner, files):
    """The cases of what changed, by number, as ctest has no list of names."""
    done = subprocess.run(cases.listing_command(), cwd=parts.ROOT, stdout=subprocess.PIPE,
                          text=True, check=False)
    listed = cases.read_numbers(done.stdout)
    programs, chosen = chosen_cases(files, [(name, program) for _, name, program in listed])
    numbers = [str(number) for number, name, program in listed if (name, program) in chosen]
    if not numbers:
        runner.outcomes.append(areas.Outcome("tests", note="nothing changed that has any"))
        return
    with open(runner.path("numbers"), "w", encoding="ascii") as file:
        file.write("0,0,0," + ",".join(numbers))
    command = ["ctest", "--preset", "release", "-j", str(os.cpu_count()), "-I",
               runner.path("numbers"), "--no-tests=error"] + runner.junit("tests").split()
    outcome, _ = runner.suite("tests", [command], echo=False)
    outcome.note += f": {', '.join(programs) or 'suites and scripts'}"


def run_all(runner, files):
    areas.area_check(runner)
    built = runner.run("build", [areas.make("build-tests", CMAKE_FLAGS=areas.RELEASE_FLAGS)],
                       echo=False)
    if not built.problems:
        run_cases(runner, files)
    if os.path.isdir(os.path.join(parts.ROOT, "build", "cuda-toolkit")):
        runner.run("cuda", [areas.CUDA_BUILD], echo=False)
    runner.run("tsan", [areas.make("build-tsan", CMAKE_FLAGS=f"{areas.RUST} {areas.PCH}")],
               echo=False)


def main():
    base = sys.argv[1] if len(sys.argv) > 1 else parts.begin_of_submission(parts.ROOT)
    files = changed_files(base)
    print(f"{len(files)} files differ from {base[:7]}", flush=True)
    with tempfile.TemporaryDirectory() as logs:
        runner = areas.Runner(logs)
        run_all(runner, files)
        for outcome in runner.outcomes:
            areas.print_outcome(outcome)
            if outcome.problems:
                print("".join(runner.log(outcome.name).splitlines(True)[-40:]), end="")
        return 1 if any(outcome.problems for outcome in runner.outcomes) else 0


if __name__ == "__main__":
    sys.exit(main())
