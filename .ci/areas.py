#!/usr/bin/env python3
"""Runs every area a change has to pass and fails where one failed, or could not run.

    .ci/areas.py [--record]

CUDA and the sanitizer's part are left out where their inputs are those of a run that passed, which
.ci/verified lists (verified.py); --record writes their lines after this run has passed. An area
that ran nothing, a required case that did not pass, a case that was skipped for anything but absent
hardware and a test program with too few cases (cases.py) are failures. One sanitizer builds a group
of programs and takes a part of its cases; the number in .ci/rotation chooses all three (parts.py;
MOEFLUX_TEST_CI_PART, a number, does instead). Its part is a sample and the last area: where
RUN_SECONDS are over, it is stopped, and the report says how many cases it reached. The last lines
say what ran, with seconds, how many cases each program has and what failed cases printed, and end
with the summary of the release suite.
"""

import os
import re
import subprocess
import sys
import tempfile
import threading
import time
import xml.etree.ElementTree
from dataclasses import dataclass, field

import cases as case_list
import parts
import verified

ROOT = parts.ROOT
SUMMARY = re.compile(r"^\d+% tests passed", re.MULTILINE)
HARDWARE = "hardware: "
WERROR = "-DMOEFLUX_WERROR=ON"
# Without Rust a build leaves chat templates out; here that is a failure.
RUST = "-DMOEFLUX_RUST=ON"
# CUDA is a later area's, in the same folder.
RELEASE_FLAGS = f"{WERROR} {RUST} -DMOEFLUX_BENCHMARKS=ON -DMOEFLUX_CUDA=OFF"
# Sanitized objects are of no use to another build. The release build has each file read its own.
PCH = "-DMOEFLUX_PCH=ON"
# One GPU's machine code: the text is the same for all, and each takes nvcc a minute and a half. The
# release folder's objects are those that a build with CUDA needs. Kernels that nothing runs here
# are hardly optimised, in half the time.
HAS_GPU = os.path.exists("/dev/nvidiactl")
CUDA_FLAGS = (f"{WERROR} {RUST} -DMOEFLUX_CUDA_ARCHITECTURES=90a "
              f"-DMOEFLUX_CUDA_QUICK={'OFF' if HAS_GPU else 'ON'}")
CUDA_TOOLKIT = ["tools/install_cuda.sh"]
CUDA_BUILD = ["make", "--no-print-directory", "build-cuda", "CUDA_PRESET=release",
              f"CMAKE_FLAGS={CUDA_FLAGS}"]

RUN_SECONDS = 2300  # of a run, before a sanitizer is stopped
STOPPED = 124  # timeout's exit status
# A case that ended, as ctest says it.
ENDED = re.compile(r"^ *\d+/\d+ Test +#\d+: (\S+).*(Passed|\*\*\*\w+)", re.MULTILINE)

FAILED_MAX = 10  # cases whose output the report repeats
FAILED_LINES = 40

CHECK_LINES = (r"^format: clean", r"^check_layers: \d+ files", r"^class_sizes: nothing to say",
               r"^tidy: nothing to say",
               r"^check_docs: nothing to say")
# Areas inside the release suite: name, what its cases are called. Every pattern has to match.
INSIDE_RELEASE = {
    "rules": (r"^check_layers$", r"^class_sizes$", r"^tidy$", r"^check_docs$"),
    "clang": (r"^MetalText\.Compiles$", r"^MetalText\.NeedsAddressSpaces$",
              r"^MetalRuntime\.Compiles$", r"^MetalRuntime\.KnowsWhatMetalHas$",
              r"^MetalTextInClang\."),
    "python": (r"^python$", r"^python_example$", r"^python_serve$", r"^python_serve_example$"),
    "pip": (r"^python_pip$",),
    "chat templates": (r"^TemplateGolden\.EveryRenderIsTransformersOwn$", r"^ChatTemplate\.",
                       r"^Template\.APromptIsWrittenExactly$"),
    "fuzz replays": (r"^fuzz_replay_",),
    "http": (r"^HttpServer\.", r"^HttpServerStream\.", r"^HttpServerLeaving\.", r"^RequestReader\.",
             r"^Access\.", r"^option_names$"),
    "documents": (r"^commands_of_documents$", r"^model_tables$"),
    "conversations": (r"^chat_terminal$", r"^chat_typing$", r"^serve_load$",
                      r"^serve_restart$", r"^ServiceTest\.", r"^ServiceApi\."),
    "installed": (r"^install$", r"^install_library$"),
}


@dataclass
class Outcome:
    """The end of an area."""

    name: str
    seconds: float = 0.0
    note: str = ""
    problems: list = field(default_factory=list)
    cases: int = 0  # that passed
    stopped: bool = False  # for time
    cpu_seconds: float = 0.0  # of its processes: more on a cold cache, not on a busy machine


@dataclass
class Case:
    """A case of a suite as ctest reports it."""

    name: str
    passed: bool
    output: str
    skipped: bool = False

    def lacks_hardware(self):
        return self.skipped and HARDWARE in self.output


def read_cases(path):
    """The cases of a JUnit file; none if it is not there.

    Disabled ones are left out: other cases run those by name, in processes of their own.
    """
    if not os.path.exists(path):
        return []
    with open(path, encoding="utf-8", errors="replace") as file:
        # Parameters of tests may hold bytes that no XML has.
        text = re.sub(r"[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", "?", file.read())
    return [Case(case.get("name"), case.get("status") == "run", "".join(case.itertext()),
                 case.get("status") == "notrun")
            for case in xml.etree.ElementTree.fromstring(text).iter("testcase")
            if case.get("status") != "disabled"]


def judge_cases(cases, at_least=1, required=()):
    """(note, problems) of a suite that has to have run."""
    problems = []
    ran = [case for case in cases if case.passed]
    hardware = 0
    for case in cases:
        if case.passed:
            continue
        if case.lacks_hardware():
            hardware += 1
        else:
            word = "skipped, but not for absent hardware" if case.skipped else "failed"
            problems.append(f"{case.name}: {word}")
    if len(ran) < at_least:
        problems.append(f"{len(ran)} cases passed, expected at least {at_least}")
    for pattern in required:
        if not any(re.search(pattern, case.name) for case in ran):
            problems.append(f"no case {pattern} passed")
    return f"{len(ran)} cases passed, {hardware} skipped for absent hardware", problems


def make(target, **variables):
    return ["make", "--no-print-directory", target] + [f"{k}={v}" for k, v in variables.items()]


def sanitize(part, ctest_flags):
    """The command for a part of a sanitizer's cases."""
    variables = {"GROUP": part.group} if part.group else {}
    flags = f"-I {part.part + 1},,{part.parts} {ctest_flags}"
    return make(f"test-{part.sanitizer}", CTEST_FLAGS=flags,
                CMAKE_FLAGS=f"{RUST} {PCH} -DMOEFLUX_SANITIZED={part.sanitized}", **variables)


def stopped_cases(log):
    """The cases of a suite that was stopped and so left no file."""
    return [Case(name, end == "Passed", "", end == "***Skipped")
            for name, end in ENDED.findall(log)]


class Runner:
    def __init__(self, logs):
        self.logs = logs
        self.end = time.monotonic() + RUN_SECONDS
        self.outcomes = []
        self.programs = {}  # cases that count of the release suite, by program
        self.ran = []  # (area of verified.py, its outcome)
        self.failed = []  # cases

    def path(self, name):
        return os.path.join(self.logs, name)

    def log(self, name):
        path = self.path(name + ".log")
        if not os.path.exists(path):
            return ""
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()

    def run(self, name, commands, echo=True):
        """Runs commands in turn until one fails; the area with its seconds, its output in a log."""
        outcome = Outcome(name)
        begin, cpu_begin = time.monotonic(), cpu_seconds()
        with open(self.path(name + ".log"), "wb") as log:
            for command in commands:
                if echo:
                    print(f"--- {name}: {' '.join(command)}", flush=True)
                status = run_logged(command, log, echo)
                outcome.stopped = status == STOPPED and command[0] == "timeout"
                if status != 0:
                    if not outcome.stopped:
                        outcome.problems.append(f"{' '.join(command)}: exit status {status}")
                    break
        outcome.seconds = time.monotonic() - begin
        outcome.cpu_seconds = cpu_seconds() - cpu_begin
        self.outcomes.append(outcome)
        return outcome

    def suite(self, name, commands, at_least=1, required=(), echo=True):
        """An area whose last command writes its cases to NAME.xml."""
        outcome = self.run(name, commands, echo)
        cases = read_cases(self.path(name + ".xml"))
        if outcome.stopped:
            cases, at_least = stopped_cases(self.log(name)), 0
        outcome.note, problems = judge_cases(cases, at_least, required)
        outcome.cases = sum(case.passed for case in cases)
        outcome.problems += problems
        self.failed += [case for case in cases if not case.passed and not case.skipped]
        return outcome, cases

    def is_left_out(self, name, area, number):
        """Whether an area is as it was when it passed; then that is its outcome."""
        note = verified.unchanged(area, number)
        if note is not None:
            self.outcomes.append(Outcome(name, note=note))
        return note is not None

    def junit(self, name):
        return f"--output-junit {self.path(name + '.xml')}"


def cpu_seconds():
    """Processor time of processes that ended."""
    times = os.times()
    return times.children_user + times.children_system


def run_logged(command, log, echo):
    try:
        process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE,
                                   stderr=subprocess.STDOUT)
    except OSError as error:
        log.write(f"{command[0]}: {error}\n".encode())
        return 127
    with process:
        for line in process.stdout:
            log.write(line)
            if echo:
                sys.stdout.buffer.write(line)
                sys.stdout.buffer.flush()
    return process.returncode


def area_check(runner):
    outcome = runner.run("check", [make("check")])
    for pattern in CHECK_LINES:
        if not re.search(pattern, runner.log("check"), re.MULTILINE):
            outcome.problems.append(f"no line {pattern}")


def area_release(runner):
    """The suite, and what is looked for in it. Benchmarks are built."""
    _, cases = runner.suite("release", [
        make("test", CMAKE_FLAGS=RELEASE_FLAGS, CTEST_FLAGS=runner.junit("release"))])
    for name, required in INSIDE_RELEASE.items():
        chosen = [c for c in cases if any(re.search(p, c.name) for p in required)]
        note, problems = judge_cases(chosen, 1, required)
        runner.outcomes.append(Outcome(name, 0.0, note + ", in release", problems))
    area_cases(runner, cases)


def area_cases(runner, cases):
    """Whether the release suite has lost cases."""
    outcome = runner.run("cases", [case_list.listing_command()], echo=False)
    pairs = case_list.read_listing(runner.log("cases"))
    counted = [case.name for case in cases if case.passed or case.lacks_hardware()]
    runner.programs = case_list.count(pairs, counted)
    outcome.note, problems = case_list.judge(runner.programs, case_list.read_list())
    outcome.problems += problems


def fetch_toolkit(runner, number):
    """Begins to bring nvcc, 300 MB, while other areas compute; a thread to join."""
    def fetch():
        with open(runner.path("toolkit.log"), "wb") as log:
            run_logged(CUDA_TOOLKIT, log, False)

    thread = threading.Thread(target=fetch)
    if verified.unchanged(verified.CUDA, number) is None:
        thread.start()
    return thread


def area_cuda(runner, number):
    """Compiles kernels and the Python package; the package is asked for cuda:0."""
    if runner.is_left_out("cuda", verified.CUDA, number):
        return
    ctest = ["ctest", "--test-dir", "build/release", "-R", "^(python_cuda|cuda_driver)$",
             "--no-tests=error", "--output-on-failure"] + runner.junit("cuda").split()
    outcome, _ = runner.suite("cuda", [CUDA_TOOLKIT, CUDA_BUILD, ctest],
                              required=(r"^python_cuda$",))
    outcome.note += "; kernels compiled for 90a"
    runner.ran.append((verified.CUDA, outcome))


def area_sanitizer(runner, number, why):
    part = parts.part_of(number)
    name = part.sanitizer
    area = verified.sanitizer(part)
    if runner.is_left_out(name, area, number):
        return
    seconds = max(1, round(runner.end - time.monotonic()))
    command = ["timeout", "--kill-after=20", str(seconds), *sanitize(part, runner.junit(name))]
    outcome, _ = runner.suite(name, [command], part.least)
    outcome.note += f"; {part}; {why}"
    if outcome.stopped:
        outcome.note += f"; STOPPED, a run has {RUN_SECONDS} s"
        return
    runner.ran.append((area, outcome))


def area_format(runner):
    """The part of make check that the release suite lacks."""
    outcome = runner.run("format", [["tools/format.sh"]])
    if not re.search(CHECK_LINES[0], runner.log("format"), re.MULTILINE):
        outcome.problems.append(f"no line {CHECK_LINES[0]}")


def run_all(runner, number, why):
    toolkit = fetch_toolkit(runner, number)
    area_format(runner)
    area_release(runner)
    if toolkit.is_alive():
        toolkit.join()
    area_cuda(runner, number)
    area_sanitizer(runner, number, why)


def areas_of(number):
    """Names of all areas of a run."""
    return ("format", "release", *INSIDE_RELEASE, "cases", "cuda",
            parts.part_of(number).sanitizer)


def missing_areas(outcomes, number):
    return [name for name in areas_of(number) if name not in [o.name for o in outcomes]]


def print_outcome(outcome):
    """A line of an area, and its problems."""
    word = "FAILED" if outcome.problems else "ok"
    print(f"{word:7}{outcome.name:14}{outcome.seconds:6.0f} s {outcome.cpu_seconds:6.0f} CPU s  "
          f"{outcome.note}")
    for problem in outcome.problems[:20]:
        print(f"       {problem}")


def print_failed(failed):
    """The last lines of what failed cases printed: whoever cannot run CI again has no more."""
    for case in failed[:FAILED_MAX]:
        print(f"--- output of {case.name}")
        print("\n".join(case.output.strip().split("\n")[-FAILED_LINES:]))


def report(runner, number):
    """Prints what ran and the release suite's summary; the exit status."""
    outcomes = runner.outcomes + [Outcome(name, problems=["did not run"])
                                  for name in missing_areas(runner.outcomes, number)]
    print("--- areas")
    for outcome in outcomes:
        print_outcome(outcome)
    print("--- cases by program")
    print("\n".join(case_list.summary(runner.programs)))
    print_failed(runner.failed)
    print("--- summary of the release suite")
    log = runner.log("release")
    summary = SUMMARY.search(log)
    print(log[summary.start():].rstrip() if summary else "the release suite did not run to its end")
    return 0 if summary and not any(outcome.problems for outcome in outcomes) else 1


def pip_compiles(number):
    """Whether pip compiles its extension in a run, as users' does; else it takes the release's."""
    return number % verified.EVERY == 0


def record(runner):
    """Writes lines of .ci/verified for what has run and passed; the exit status."""
    reasons = [verified.record(area, outcome.seconds, outcome.cases)
               for area, outcome in runner.ran]
    for reason in filter(None, reasons):
        print(f"not recorded: {reason}")
    return 1 if any(reasons) else 0


def main(arguments):
    if arguments not in ([], ["--record"]):
        print(__doc__.strip(), file=sys.stderr)
        return 2
    number, why = parts.chosen()
    if pip_compiles(number):
        os.environ["MOEFLUX_TEST_PIP_COMPILES"] = "1"
    with tempfile.TemporaryDirectory() as logs:
        runner = Runner(logs)
        run_all(runner, number, why)
        return report(runner, number) or (record(runner) if arguments else 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
