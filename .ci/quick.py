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


def programs_of(files, known):
    """The test programs of the modules that files belong to: src/NAME has NAME_test."""
    found = set()
    for file in files:
        folders = os.path.dirname(file).split("/")
        for depth in range(len(folders), 0, -1):
            name = "_".join(folders[1:depth]) + "_test"
            if folders[0] in ("src", "tests") and name in known:
                found.add(name)
                break
    return sorted(found)


def chosen_cases(files, pairs):
    """Names of the cases to run: of changed modules' programs, scripts of changed folders."""
    programs = programs_of(files, {program for _, program in pairs})
    patterns = [case for file, case in SCRIPTS if any(re.search(file, f) for f in files)]
    # tests/FOLDER/NAME_test.py is a case FOLDER_NAME, NAME or NAME_selftest; fuzz/NAME_fuzz.cc and
    # fuzz/corpus/NAME/ are one too.
    for file in files:
        if script := re.fullmatch(r"tests/(?:.*/)?(\w+)/(\w+?)(?:_test)?\.(?:py|sh)", file):
            patterns.append(f"^({script[1]}_)?{script[2]}(_selftest)?$")
        if target := re.match(r"fuzz/(?:(\w+)_fuzz\.cc|corpus/(\w+)/)", file):
            patterns.append(f"^fuzz_replay_{target[1] or target[2]}$")
    chosen = [name for name, program in pairs
              if program in programs or any(re.search(pattern, name) for pattern in patterns)]
    return programs, chosen


def listed_pairs():
    done = subprocess.run(cases.listing_command(), cwd=parts.ROOT, stdout=subprocess.PIPE,
                          text=True, check=False)
    return cases.read_listing(done.stdout)


def run_cases(runner, files):
    """The cases of what changed, by number, as ctest has no list of names."""
    pairs = listed_pairs()
    programs, chosen = chosen_cases(files, pairs)
    # Suites make the pattern, so that the command stays short; All/NAME is one of many.
    names = sorted({re.escape(name.split(".")[0]) for name in chosen})
    if not names:
        runner.outcomes.append(areas.Outcome("tests", note="nothing changed that has any"))
        return
    pattern = f"^({'|'.join(names)})([./]|$)"
    command = ["ctest", "--preset", "release", "-j", str(os.cpu_count()), "-R", pattern,
               "--no-tests=error"] + runner.junit("tests").split()
    outcome, _ = runner.suite("tests", [command], echo=False)
    outcome.note += f": {', '.join(programs) or 'scripts'}"


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
