""".ci/areas.py passes when every area ran, and fails when one is missing, empty, skipped or smaller
than it was; the number in .ci/rotation brings every part of the sanitizers to its turn."""

import contextlib
import io
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest
from xml.sax.saxutils import escape, quoteattr

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
sys.path.insert(0, os.path.join(ROOT, ".ci"))
import areas  # noqa: E402
import cases  # noqa: E402
import parts  # noqa: E402
import quick  # noqa: E402
import verified  # noqa: E402

SUMMARY = "100% tests passed, 0 tests failed out of 8\n\nTotal Test time (real) = 1.00 sec\n"
RELEASE = ("MetalText.Compiles", "MetalText.NeedsAddressSpaces", "MetalRuntime.Compiles",
           "MetalRuntime.KnowsWhatMetalHas", "MetalTextInClang.CompilesInOnePiece", "python",
           "python_example", "python_serve", "python_serve_example", "python_pip",
           "fuzz_replay_config",
           "TemplateGolden.EveryRenderIsTransformersOwn", "ChatTemplate.MarkersStayInert",
           "Template.APromptIsWrittenExactly", "HttpServer.AnswersManyRequestsOfAConnection",
           "HttpServerStream.StreamsInChunks", "HttpServerLeaving.WhoCloses", "Access.OnlyJson",
           "option_names", "chat_typing", "commands_of_documents", "model_tables",
           "RequestReader.StopsBehindTheHeaders",
           "chat_terminal", "serve_load", "serve_restart",
           "ServiceTest.WhoLeavesIsCancelled", "ServiceApi.AnswersWholeAndInPieces", "install",
           "install_library", "check_layers", "class_sizes", "tidy", "check_docs")


def number_of(sanitizer, group):
    """The number of a run that takes the second part of these."""
    return next(number for number, part in enumerate(parts.ALL_PARTS)
                if (part.sanitizer, part.group, part.part) == (sanitizer, group, 1)
                and part.sanitized in ("gpu", ""))


ASAN, TSAN = number_of("asan", "golden"), number_of("tsan", "")
ASAN_GROUP = "GROUP=golden"
OURS = "/some/folder/build/release/bin"  # programs


def listing(programs):
    """The output of ctest for cases by program."""
    folders = {cases.SCRIPTS: "/usr/bin"}
    tests = [{"name": name, "command": [f"{folders.get(program, OURS)}/{program}", name]}
             for program, names in programs.items() for name in names]
    return json.dumps({"kind": "ctestInfo", "tests": tests}, indent=1)


class StoppedTest(unittest.TestCase):
    def test_a_command_and_what_it_began_are_stopped(self):
        log = io.BytesIO()
        self.assertEqual(areas.STOPPED, areas.run_logged(
            ["timeout", "0.3", "sh", "-c", "echo begun; sleep 99; true"], log, False))
        self.assertEqual(b"begun\n", log.getvalue())


class FakeMachine:
    """Commands that leave what the real ones would."""

    def __init__(self, logs):
        self.logs = logs
        self.status = {}  # by a word of the command
        self.output = {"tools/format.sh": "format: clean\n", "test": SUMMARY}
        self.programs = {"one_test": RELEASE[:15], cases.SCRIPTS: RELEASE[15:]}
        self.cases = {"release": [(name, "run", "") for name in RELEASE],
                      "cuda": [("python_cuda", "run", "")],
                      "asan": [(f"Case.{i}", "run", "") for i in range(100)],
                      "tsan": [(f"Case.{i}", "run", "") for i in range(60)]}
        self.ran = []

    def run_logged(self, command, log, echo):
        self.ran.append(" ".join(command))
        log.write("".join(text for word, text in self.output.items() if word in command).encode())
        if "--show-only=json-v1" in command:
            log.write(listing(self.programs).encode())
        for name, cases in self.cases.items():
            if any(os.path.join(self.logs, name + ".xml") in word for word in command):
                with open(os.path.join(self.logs, name + ".xml"), "w", encoding="utf-8") as file:
                    file.write("<testsuite>" + "".join(
                        f"<testcase name={quoteattr(n)} status={quoteattr(s)}>"
                        f"<system-out>{escape(o)}</system-out></testcase>" for n, s, o in cases)
                        + "</testsuite>")
        return max([status for word, status in self.status.items() if word in command], default=0)


class CiTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.runner = areas.Runner(folder.name)
        self.machine = FakeMachine(folder.name)
        self.replace(areas, "run_logged", self.machine.run_logged)
        self.listed = {"one_test": 15, cases.SCRIPTS: len(RELEASE) - 15}
        self.replace(cases, "read_list", lambda: self.listed)
        self.lines = {}
        self.replace(verified, "read_lines", lambda root=None: self.lines)

    def replace(self, where, name, value):
        self.addCleanup(setattr, where, name, getattr(where, name))
        setattr(where, name, value)

    def report(self, number=ASAN):
        """(status, text) of a run."""
        text = io.StringIO()
        with contextlib.redirect_stdout(text):
            areas.run_all(self.runner, number, "number 3 of a test")
            status = areas.report(self.runner, number)
        return status, text.getvalue()

    def assert_fails(self, *words, number=ASAN):
        status, text = self.report(number)
        self.assertEqual(1, status, text)
        for word in words:
            self.assertIn(word, text)

    def without(self, suite, name):
        self.machine.cases[suite] = [c for c in self.machine.cases[suite] if c[0] != name]

    def test_everything_ran_and_the_last_lines_are_the_suites(self):
        for number, target, words in ((ASAN, "test-asan",
                                       (f"-I 2,,{parts.ASAN_PARTS['golden', 'gpu'][0]}",
                                        ASAN_GROUP, "-DMOEFLUX_SANITIZED=gpu")),
                                      (TSAN, "test-tsan",
                                       (f"-I 2,,{parts.TSAN_PARTS[0]}", ""))):
            with self.subTest(target):
                self.setUp()
                status, text = self.report(number)
                self.assertEqual(0, status, text)
                for area in areas.areas_of(number):
                    self.assertRegex(text, rf"(?m)^ok +{area} ")
                self.assertIn("number 3 of a test\n", text)
                self.assertIn("one_test 15, scripts 19\n--- summary", text)
                self.assertTrue(text.endswith(SUMMARY), text)
                self.assertTrue(any(all(word in command for word in words)
                                    for command in self.machine.ran))
                for made in ("test", target):
                    self.assertTrue(any(f" {made} " in command and "-DMOEFLUX_RUST=ON" in command
                                        for command in self.machine.ran), made)

    def test_cuda_takes_the_objects_of_the_release(self):
        self.report()
        made = [command for command in self.machine.ran if "build-cuda" in command]
        self.assertEqual(1, len(made))
        self.assertIn("CUDA_PRESET=release", made[0])
        self.assertIn(f"-DMOEFLUX_CUDA_QUICK={'OFF' if areas.HAS_GPU else 'ON'}", made[0])

    def test_nvcc_is_fetched_beside_the_first_areas_where_it_is_wanted(self):
        for hashed, fetched in (("h1", 0), ("h2", 2)):
            with self.subTest(hashed):
                self.setUp()
                self.replace(verified, "digest", lambda area, root=None: "h1")
                self.lines = {verified.CUDA.name: [hashed, "abc1234", "99", "60"]}
                self.report()
                self.assertEqual(fetched, self.machine.ran.count("tools/install_cuda.sh"))

    def test_an_area_that_passed_as_it_is_is_left_out_but_not_in_every_eighth_run(self):
        for number, area, target in ((ASAN, verified.CUDA, "build-cuda"),
                                     (ASAN, verified.sanitizer(parts.part_of(ASAN)), "test-asan"),
                                     (TSAN, verified.sanitizer(parts.part_of(TSAN)), "test-tsan")):
            number += len(parts.ALL_PARTS) * (number % 8 == 0)
            eighth = next(n for n in range(number, 999, len(parts.ALL_PARTS)) if n % 8 == 0)
            for hashed, run, left_out in (("h1", number, True), ("h2", number, False),
                                          ("h1", eighth, False)):
                with self.subTest(target, hashed=hashed, run=run):
                    self.setUp()
                    self.replace(verified, "digest", lambda area, root=None: "h1")
                    self.lines = {area.name: [hashed, "abc1234", "99", "60"]}
                    status, text = self.report(run)
                    self.assertEqual(0, status, text)
                    self.assertEqual(left_out,
                                     "unchanged since abc1234: 60 cases in 99 s then" in text)
                    self.assertEqual(left_out, not any(target in command
                                                       for command in self.machine.ran))

    def test_areas_that_ran_are_recorded(self):
        recorded = []
        self.replace(verified, "record", lambda *area: recorded.append(area))
        self.report()
        self.assertEqual(0, areas.record(self.runner))
        self.assertEqual([("cuda", 1), (verified.sanitizer(parts.part_of(ASAN)).name, 100)],
                         [(area.name, cases) for area, _, cases in recorded])
        self.replace(verified, "record", lambda *area: "x.cc is not as committed")
        with contextlib.redirect_stdout(io.StringIO()) as text:
            self.assertEqual(1, areas.record(self.runner))
        self.assertIn("not recorded: x.cc", text.getvalue())

    def test_pip_compiles_in_some_runs(self):
        self.assertEqual([8, 16], [number for number in range(1, 17) if areas.pip_compiles(number)])

    def test_an_area_nobody_called_fails(self):
        for name in ("area_format", "area_release", "area_cuda", "area_sanitizer"):
            with self.subTest(name):
                self.setUp()
                real = getattr(areas, name)
                setattr(areas, name, lambda *_: 100)
                try:
                    self.assert_fails("did not run")
                finally:
                    setattr(areas, name, real)

    def test_a_failing_command_fails_its_area_and_the_rest_still_runs(self):
        for word in ("tools/format.sh", "test", "tools/install_cuda.sh", "build-cuda", "test-asan",
                     "test-tsan"):
            with self.subTest(word):
                self.setUp()
                self.machine.status = {word: 2}
                self.assert_fails("FAILED", "exit status 2",
                                  number=TSAN if word == "test-tsan" else ASAN)
                self.assertTrue(any("test-tsan" in command or "test-asan" in command
                                    for command in self.machine.ran))

    def test_a_sanitizer_is_stopped_for_time_and_says_how_far_it_came(self):
        line = "{0}/9 Test #{0}: Case.{0}  # GetParam() = \"Passed\" ...{1} 0.10 sec\n"
        for ends, status, words in ((("   Passed", "***Skipped"), 1, "skipped, but not for absent"),
                                    (("   Passed", "***Failed"), 1, "Case.2: failed"),
                                    (("   Passed", "   Passed"), 0, "2 cases passed"),
                                    ((), 0, "0 cases passed")):
            with self.subTest(ends):
                self.setUp()
                self.machine.status = {"test-asan": areas.STOPPED}
                del self.machine.cases["asan"]
                self.machine.output["test-asan"] = "".join(
                    line.format(i + 1, end) for i, end in enumerate(ends))
                found, text = self.report()
                self.assertEqual(status, found, text)
                self.assertIn(words, text)
                self.assertIn("STOPPED, a run has", text)
                self.assertEqual(["cuda"], [area.name for area, _ in self.runner.ran])

    def test_a_check_that_was_skipped_fails(self):
        self.machine.output["tools/format.sh"] = "format: skipped, no clang\n"
        self.assert_fails("FAILED format", "format: clean")

    def test_every_required_case_has_to_be_there_and_pass(self):
        for name in RELEASE:
            with self.subTest(name):
                self.setUp()
                self.without("release", name)
                self.assert_fails("FAILED", "passed")
        self.without("cuda", "python_cuda")
        self.assert_fails("FAILED cuda")

    def test_a_skip_needs_absent_hardware(self):
        self.machine.cases["release"].append(("Gpu.Case", "notrun", "x.cc:1\nhardware: no GPU"))
        self.assertEqual(0, self.report()[0])
        self.setUp()
        self.machine.cases["release"].append(("Some.Case", "notrun", "skipped: no clang++"))
        self.assert_fails("Some.Case: skipped")

    def add_program(self, name, count, status="run", output=""):
        """A program of the release suite; the names of its cases."""
        names = [f"{name}.{i}" for i in range(count)]
        self.machine.programs[name] = names
        self.machine.cases["release"] += [(case, status, output) for case in names]
        return names

    def test_a_program_that_is_gone_fails(self):
        self.listed["golden_test"] = 1
        self.assert_fails("FAILED cases", "golden_test: 0 cases, expected at least 1 of the 1")

    def test_a_program_that_lost_a_tenth_of_its_cases_fails(self):
        for before, ran, fails in ((100, 91, False), (100, 90, True), (101, 91, False),
                                   (101, 90, True), (10, 9, True), (9, 8, True), (1, 0, True),
                                   (20, 19, False), (20, 18, True)):
            with self.subTest(before=before, ran=ran):
                self.setUp()
                self.listed["big_test"] = 2000
                self.add_program("big_test", 2000)
                self.listed["some_test"] = before
                self.add_program("some_test", ran)
                if fails:
                    self.assert_fails("FAILED cases", f"some_test: {ran} cases")
                else:
                    self.assertEqual(0, self.report()[0])

    def test_a_program_that_is_not_in_the_list_fails(self):
        self.add_program("new_test", 1)
        self.assert_fails("FAILED cases", "new_test: not in .ci/cases", "make cases")

    def test_what_all_programs_have_is_held_to_two_in_a_hundred(self):
        for ran, fails in ((1000, False), (995, False), (994, True), (1015, False), (1017, True)):
            with self.subTest(ran):
                self.setUp()
                self.listed["some_test"] = 1000
                self.add_program("some_test", ran)
                if fails:
                    self.assert_fails("FAILED cases", "cases in all")
                else:
                    self.assertEqual(0, self.report()[0])

    def test_a_case_without_its_hardware_counts_and_a_disabled_one_does_not(self):
        self.listed["gpu_test"] = 50
        self.add_program("gpu_test", 50, "notrun", "hardware: no GPU")
        self.assertEqual(0, self.report()[0])
        self.setUp()
        self.listed["some_test"] = 50
        self.add_program("some_test", 50, "disabled")
        self.assert_fails("some_test: 0 cases")

    def test_cases_of_one_name_count_for_each_program(self):
        for name in ("a_test", "b_test"):
            self.listed[name] = 1
            self.machine.programs[name] = ["Same.Name"]
            self.machine.cases["release"].append(("Same.Name", "run", ""))
        self.assertEqual(0, self.report()[0])
        self.machine.cases["release"].pop()
        self.assert_fails("b_test: 0 cases")

    def test_a_suite_that_ctest_does_not_list_fails(self):
        self.machine.programs = {}
        self.assert_fails("FAILED cases", "one_test: 0 cases")

    def test_a_failed_case_is_no_skip_whatever_it_says(self):
        self.machine.cases["tsan"].append(("Some.Case", "fail", "hardware: no GPU"))
        self.assert_fails("Some.Case: failed", "--- output of Some.Case\nhardware: no GPU\n",
                          number=TSAN)

    def test_a_disabled_case_is_for_another_case_to_run(self):
        self.machine.cases["release"].append(("Child.Continues", "disabled", ""))
        self.assertEqual(self.report()[0], 0)

    def test_a_suite_without_cases_or_with_few_fails(self):
        for suite in ("release", "cuda", "asan", "tsan"):
            with self.subTest(suite):
                self.setUp()
                del self.machine.cases[suite]
                self.assert_fails("FAILED", "0 cases passed",
                                  number=TSAN if suite == "tsan" else ASAN)
        for suite, number, few in (("asan", ASAN, 99), ("tsan", TSAN, parts.TSAN_PARTS[1] - 1)):
            self.setUp()
            self.machine.cases[suite] = self.machine.cases[suite][:few]
            self.assert_fails(f"FAILED {suite}", f"{few} cases passed, expected at least",
                              number=number)

    def test_without_a_summary_there_is_nothing_to_believe(self):
        self.machine.output["test"] = "ninja: build stopped\n"
        self.assert_fails("did not run to its end")

    def test_every_group_of_programs_is_sanitized(self):
        groups = set()
        for folder, _, files in os.walk(ROOT):
            if "CMakeLists.txt" in files and not folder.startswith(os.path.join(ROOT, "build")):
                with open(os.path.join(folder, "CMakeLists.txt"), encoding="utf-8") as file:
                    groups.update(re.findall(r"set\(MOEFLUX_TEST_GROUP (\w+)\)", file.read()))
        self.assertEqual({(group, "rest") for group in groups},
                         {part for part in parts.ASAN_PARTS if part[1] == "rest"})

    def test_bytes_no_xml_has_are_read(self):
        path = self.runner.path("odd.xml")
        with open(path, "wb") as file:
            file.write(b'<testsuite><testcase name="a\xff\x01" status="run"/></testsuite>')
        self.assertEqual([True], [case.passed for case in areas.read_cases(path)])


class VerifiedTest(unittest.TestCase):
    FILES = {"src/backend/cuda/a.cu": '#include "base/x.h"\n', "src/base/x.h": '# include "y.h"\n',
             "src/base/y.h.in": "@LIST@\n", "src/base/x.cc": "int x;\n",
             "src/model/m.cc": "int m;\n",
             "CMakeLists.txt": "project(x)\n", "docs/a.md": "a\n", "README.md": "a\n",
             "tools/install_deps.sh": 'run="g++"\n', "tools/install_cuda.sh": "nvcc==1\n",
             ".ci/rotation": "1\n"}
    SANITIZER = verified.sanitizer(parts.ALL_PARTS[0])

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = folder.name
        for name, text in self.FILES.items():
            self.write(name, text)
        self.git("init", "-q")
        self.commit()
        os.mkdir(os.path.join(self.root, "bin"))
        self.ninja("")
        self.write(".git/info/exclude", "bin\n")
        before = os.environ["PATH"]
        self.addCleanup(os.environ.__setitem__, "PATH", before)
        os.environ["PATH"] = os.path.join(self.root, "bin") + os.pathsep + before

    def write(self, name, text):
        path = os.path.join(self.root, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return path

    def ninja(self, deps):
        """A ninja that has compiled from what it is said to have."""
        os.chmod(self.write("bin/ninja", f"#!/bin/sh\nprintf '{deps}'\n"), 0o755)

    def git(self, *arguments):
        names = ["-c", "user.name=a", "-c", "user.email=a@b"]
        subprocess.run(["git", *names, *arguments], cwd=self.root, check=True)

    def commit(self):
        self.git("add", "-A")
        self.git("commit", "-q", "-m", "x")

    def record(self, area):
        return verified.record(area, 61.7, 12, self.root)

    def unchanged(self, area, number=9):
        return verified.unchanged(area, number, self.root)

    def test_what_passed_is_known_until_an_input_changes(self):
        begin = parts.git(self.root, "rev-parse", "--short=12", "HEAD")
        for area in (verified.CUDA, self.SANITIZER):
            self.assertIsNone(self.unchanged(area))
            self.assertIsNone(self.record(area))
        self.commit()
        both = [verified.CUDA, self.SANITIZER]
        for name, text, still in (
                (".ci/rotation", "2\n", both), ("docs/a.md", "b\n", both),
                ("README.md", "b\n", both),
                ("src/model/m.cc", "int n;\n", [verified.CUDA]),
                ("src/base/x.cc", "int y;\n", [verified.CUDA]),
                ("src/base/x.h", "int x;\n", []), ("src/base/y.h.in", "int y;\n", []),
                ("src/backend/cuda/b.cu", "int b;\n", []), ("src/base/new.h", "", []),
                ("CMakeLists.txt", "project(y)\n", []), ("cmake/x.cmake", "x\n", []),
                ("tools/install_cuda.sh", "nvcc==2\n", []),
                ("src/backend/cuda/a.cu", "int a;\n", [])):
            with self.subTest(name):
                self.write(name, text)
                for area in both:
                    expected = f"unchanged since {begin}: 12 cases in 62 s then"
                    self.assertEqual(expected if area in still else None, self.unchanged(area))
                    self.assertIsNone(self.unchanged(area, 16))
                self.git("checkout", "-q", ".")
                self.git("clean", "-q", "-f", "-d")
        os.remove(os.path.join(self.root, "src/base/x.cc"))
        self.assertIsNone(self.unchanged(verified.CUDA))

    def test_another_compiler_is_another_hash(self):
        self.record(verified.CUDA)
        before = verified.versions
        self.addCleanup(setattr, verified, "versions", before)
        verified.versions = lambda root: before(root) + "g++ 99"
        self.assertIsNone(self.unchanged(verified.CUDA))

    def test_only_what_was_committed_is_recorded(self):
        self.write("src/model/m.cc", "int n;\n")
        self.assertEqual("src/model/m.cc is not as committed", self.record(verified.CUDA))
        self.assertEqual({}, verified.read_lines(self.root))

    def test_a_file_that_a_compiler_read_and_no_include_led_to_is_not_recorded(self):
        deps = "src/backend/cuda/a.o: #deps 2, deps mtime 1 (VALID)\\n    ../../src/base/x.h\\n" \
               "    {}\\n    /usr/include/x.h\\n\\nsrc/model/m.o: #deps 1\\n" \
               "    ../../src/model/m.cc\\n"
        self.ninja(deps.format("../../src/base/x.cc"))
        self.assertIn("compiled from src/base/x.cc", self.record(verified.CUDA))
        self.ninja(deps.format("../../src/backend/cuda/a.cu"))
        self.assertIsNone(self.record(verified.CUDA))


class QuickTest(unittest.TestCase):
    PAIRS = [("Shelf.Keeps", "store_test"), ("Chat.Decodes", "serve_test"),
             ("serve_kept", cases.SCRIPTS), ("tidy_selftest", cases.SCRIPTS),
             ("fuzz_replay_config", "config_fuzz_replay"), ("Cpu.Adds", "backend_test"),
             ("Cpu.Works", "backend_cpu_test"), ("Linear/Cpu", "conformance_test"),
             ("Config.Reads", "model_test"), ("All/Golden.Agrees/qwen4_text  # x", "golden_test"),
             ("All/Golden.Agrees/qwen40  # x", "golden_test"),
             ("All/PastGolden.Forks/beam  # x", "golden_test")]

    def test_a_file_runs_the_tests_of_its_module(self):
        for file, programs, names in (
                ("src/store/shelf.cc", ["store_test"], ["Shelf.Keeps"]),
                ("src/serve/openai/chat.cc", ["serve_test"], ["Chat.Decodes", "serve_kept"]),
                ("src/backend/cpu/isa/avx2.cc", ["backend_cpu_test"], ["Cpu.Works"]),
                ("src/backend/encoder.h", ["backend_test"], ["Cpu.Adds"]),
                ("tests/conformance/not_there_test.cc", ["conformance_test"], ["Linear/Cpu"]),
                ("tests/serve/kept_test.py", ["serve_test"], ["Chat.Decodes", "serve_kept"]),
                ("tests/tools/tidy_test.py", [], ["tidy_selftest"]),
                ("tools/tidy.py", [], ["tidy_selftest"]), ("README.md", [], []),
                ("fuzz/corpus/config/new.json", [], ["fuzz_replay_config"]),
                ("src/model/families/qwen4.cc", ["model_test"],
                 ["Config.Reads", "All/Golden.Agrees/qwen4_text  # x"]),
                ("tests/golden/mtp/beam/config.json", [], ["All/PastGolden.Forks/beam  # x"]),
                ("tests/golden/past_golden_test.cc", [], ["All/PastGolden.Forks/beam  # x"])):
            with self.subTest(file):
                found, chosen = quick.chosen_cases([file], self.PAIRS)
                self.assertEqual((programs, set(names)), (found, {name for name, _ in chosen}))

    def test_files_that_git_does_not_know_yet_count(self):
        with tempfile.TemporaryDirectory() as folder:
            for command in (["init", "-q"], ["-c", "user.name=a", "-c", "user.email=a@b", "commit",
                                             "-q", "--allow-empty", "-m", "x"]):
                subprocess.run(["git", *command], cwd=folder, check=True)
            with open(os.path.join(folder, "new.cc"), "w", encoding="ascii"):
                pass
            before = parts.ROOT
            parts.ROOT = folder
            try:
                self.assertEqual(["new.cc"], quick.changed_files("HEAD"))
            finally:
                parts.ROOT = before


class ListOfCasesTest(unittest.TestCase):
    def test_the_list_of_this_tree_is_one_line_a_program(self):
        listed = cases.read_list()
        for program in ("golden_test", "conformance_test", cases.SCRIPTS):
            self.assertGreater(listed.get(program, 0), 0, program)
        with open(cases.PATH, encoding="ascii") as file:
            self.assertEqual(len(file.readlines()), len(listed))

    def test_what_was_written_is_read(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "cases")
            self.assertEqual({}, cases.read_list(path))
            cases.write_list({"b_test": 3, "a_test": 12}, path)
            with open(path, encoding="ascii") as file:
                self.assertEqual("a_test 12\nb_test 3\n", file.read())
            self.assertEqual({"a_test": 12, "b_test": 3}, cases.read_list(path))

    def test_programs_are_those_that_ctest_calls(self):
        tests = [{"name": "A.B", "command": [f"{OURS}/a_test", "--gtest_filter=A.B"]},
                 {"name": "DISABLED", "command": [f"{OURS}/a_test"],
                  "properties": [{"name": "DISABLED", "value": True}]},
                 {"name": "tidy", "command": ["/usr/bin/python3", "tools/tidy.py"]},
                 {"name": "python", "command": ["cmake", "-E", "echo", "skipped: no NumPy"]},
                 {"name": "b_test_NOT_BUILT"}]
        self.assertEqual([("A.B", "a_test"), ("tidy", cases.SCRIPTS), ("python", cases.SCRIPTS),
                          ("b_test_NOT_BUILT", "b_test_NOT_BUILT")],
                         cases.read_listing("Internal ctest changing into directory: x\n" +
                                            json.dumps({"tests": tests})))
        for text in ("", "No such directory", "{", "{}"):
            self.assertEqual([], cases.read_listing(text))

    def test_a_summary_has_short_lines(self):
        lines = cases.summary({f"program_{i:02}_test": i for i in range(30)}, 60)
        self.assertTrue(all(0 < len(line) <= 60 for line in lines))
        self.assertEqual(30, ", ".join(lines).count("program_"))


class RotationTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = folder.name
        os.mkdir(os.path.join(self.root, ".ci"))
        self.git("init", "-q", "-b", "main")

    def git(self, *arguments):
        names = ["-c", "user.name=a", "-c", "user.email=a@b"]
        subprocess.run(["git", *names, *arguments], cwd=self.root, check=True,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def commit(self, number=None):
        if number is not None:
            with open(os.path.join(self.root, parts.FILE), "w", encoding="ascii") as file:
                file.write(f"{number}\n")
        self.git("add", "-A")
        self.git("commit", "-q", "--allow-empty", "-m", "x")

    def compare(self):
        return parts.compare(parts.read_number(self.root), self.root)

    def test_consecutive_numbers_meet_every_part_once_and_no_group_twice_in_a_row(self):
        row = [parts.part_of(number) for number in range(100, 100 + len(parts.ALL_PARTS) + 1)]
        wanted = sum(count for count, _ in parts.ASAN_PARTS.values()) + parts.TSAN_PARTS[0]
        self.assertEqual(wanted, len(parts.ALL_PARTS))
        self.assertEqual(wanted, len(set(row)))
        for one, next_one in zip(row, row[1:]):
            self.assertNotEqual((one.sanitizer, one.group, one.sanitized),
                                (next_one.sanitizer, next_one.group, next_one.sanitized))

    def test_a_raise_by_the_last_commit_is_new_and_a_commit_without_one_repeats(self):
        self.commit(5)
        self.assertEqual("number 5; no commit before this one to compare with", self.compare())
        self.commit(6)
        self.assertEqual("number 6", self.compare())
        self.commit()
        self.assertIn("number 6 REPEATS", self.compare())
        self.commit(9)
        self.assertIn("number 9 passes parts over", self.compare())
        self.commit(8)
        self.assertIn("number 8 REPEATS", self.compare())

    def test_a_submission_is_compared_with_what_it_was_made_from(self):
        self.commit(5)
        self.git("update-ref", "refs/remotes/origin/main", "HEAD")
        self.commit()
        self.assertIn("REPEATS", self.compare())
        self.commit(6)
        self.commit()
        self.assertEqual("number 6", self.compare())
        # Landed: the clone knows no more than the commit before.
        self.git("update-ref", "refs/remotes/origin/main", "HEAD")
        self.assertIn("REPEATS", self.compare())

    def test_the_first_number_and_a_history_that_is_cut(self):
        self.commit()
        self.commit(4)
        self.assertEqual("number 4, the first", self.compare())
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run(["git", "clone", "-q", "--depth=1", f"file://{self.root}", folder],
                           check=True, stderr=subprocess.DEVNULL)
            self.assertIn("no commit before", parts.compare(4, folder))

    def test_what_is_no_number_is_refused(self):
        self.commit("five")
        with self.assertRaisesRegex(ValueError, "'five', expected one number"):
            parts.read_number(self.root)

    def test_the_environment_has_its_way(self):
        before = os.environ.get("MOEFLUX_TEST_CI_PART")
        os.environ["MOEFLUX_TEST_CI_PART"] = "17"
        try:
            self.assertEqual((17, "number 17 of MOEFLUX_TEST_CI_PART"), parts.chosen())
            del os.environ["MOEFLUX_TEST_CI_PART"]
            self.assertEqual(parts.read_number(), parts.chosen()[0])
        finally:
            if before is not None:
                os.environ["MOEFLUX_TEST_CI_PART"] = before


if __name__ == "__main__":
    unittest.main()
