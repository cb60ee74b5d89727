"""benchmarks/compare_llama_bench.py against programs that print what benches print."""

import io
import json
import os
import shlex
import sys
import tempfile
import unittest

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
sys.path.insert(0, os.path.join(ROOT, "benchmarks"))
import compare_llama_bench as compare  # noqa: E402


def result(prompt, gen, samples, **more):
    return {"build_commit": "abc", "model_type": "toy", "model_size": 450, "model_n_params": 800,
            "n_prompt": prompt, "n_gen": gen, "samples_ts": samples, **more}


class CompareTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.calls = os.path.join(self.folder.name, "calls")

    def program(self, name, results, help_text="", status=0):
        """A program that notes its arguments and prints these results."""
        path = os.path.join(self.folder.name, name)
        body = (f'[ "$1" = --help ] && {{ echo {shlex.quote(help_text)}; exit 0; }}\n'
                f'echo "{name} $*" >> {shlex.quote(self.calls)}\n'
                f"echo {shlex.quote(json.dumps(results, indent=1))}\n"
                f"echo 'model would not load' >&2\nexit {status}\n")
        with open(path, "w", encoding="utf-8") as file:
            file.write("#!/bin/sh\n" + body)
        os.chmod(path, 0o755)
        return path

    def compare(self, mine, theirs, *more):
        out, log = io.StringIO(), io.StringIO()
        status = compare.main(["--moeflux", mine, "--moeflux-model", "dir", "--peer", theirs,
                               "--peer-model", "file", "-t", "2", *more], out, log)
        return status, out.getvalue(), log.getvalue()

    def noted(self):
        with open(self.calls, encoding="utf-8") as file:
            return file.read().splitlines()

    def test_runs_in_turn_and_divides_medians(self):
        mine = self.program("mine", [result(512, 0, [300.0, 100.0, 200.0])])
        theirs = self.program("theirs", [result(512, 0, [400.0])])
        status, text, log = self.compare(mine, theirs, "--peer-args=-fa 1")
        self.assertEqual(0, status, log)
        self.assertEqual(["mine", "theirs"] * 2, [c.split()[0] for c in self.noted()])
        row = next(line for line in text.splitlines() if line.startswith("| pp512"))
        cells = [cell.strip() for cell in row.strip("|").split("|")]
        self.assertEqual(["pp512", "200.00 (100.00 to 300.00)", "400.00 (400.00 to 400.00)",
                          "0.50 (0.50 to 0.50)", "-"], cells)
        self.assertIn("4.50 bits a weight", text)
        self.assertIn("-fa 1", self.noted()[1])

    def test_ratio_ranges_over_pairs_of_runs(self):
        self.assertEqual("1.00 (0.50 to 1.50)",
                         compare.ratio_cell([[1.0], [3.0]], [[2.0], [2.0]]))
        # Twice as fast in a slow round and in a fast one: twice as fast.
        self.assertEqual("2.00 (2.00 to 2.00)",
                         compare.ratio_cell([[2.0], [20.0]], [[1.0], [10.0]]))
        self.assertEqual("-", compare.ratio_cell([[1.0]], [[]]))

    def test_a_depth_is_said_as_the_peer_knows_it(self):
        mine = self.program("mine", [result(0, 32, [1.0], n_depth=4096)])
        for help_text, expected in (("  -d, --n-depth <n>", "-p 512 -n 32 -d 0,4096"),
                                    ("  -gp <pp,tg>", "-p 512 -n 32 -gp 4096,32"),
                                    ("  -p <n>", "-p 512 -n 32")):
            theirs = self.program("theirs", [result(512, 0, [1.0])], help_text)
            status, _, log = self.compare(mine, theirs, "-d", "0,4096", "--rounds", "1")
            self.assertEqual(0, status, log)
            self.assertTrue(self.noted()[-1].endswith(expected), self.noted()[-1])
        status, _, log = self.compare(mine, theirs, "-d", "4096", "--rounds", "1")
        self.assertEqual(1, status)
        self.assertIn("neither -d nor -gp", log)

    def test_both_ways_to_say_a_depth_are_one_row(self):
        ours = compare.speeds_of([result(0, 32, [2.0], n_depth=4096)])
        peer = compare.speeds_of([result(4096, 32, [3.0], test="tg32@pp4096")])
        self.assertEqual(list(ours), list(peer))
        self.assertEqual("tg32 @ d4096", compare.name_of(next(iter(ours))))
        both = compare.test_of(result(512, 32, [3.0], test="pp512+tg32"))
        self.assertEqual("pp512+tg32", compare.name_of(both))

    def test_finds_the_results_among_log_lines(self):
        results = [result(512, 0, [1.0])]
        text = "[info] loading\nrepacked 3 tensors\n" + json.dumps(results) + "\nbye\n"
        self.assertEqual(results, compare.parse_json(text, "x"))
        with self.assertRaisesRegex(compare.CompareError, "x: expected a JSON list"):
            compare.parse_json("| model | t/s |\n", "x")

    def test_a_program_that_fails_is_named_with_what_it_said(self):
        mine = self.program("mine", [], status=3)
        theirs = self.program("theirs", [])
        status, _, log = self.compare(mine, theirs)
        self.assertEqual(1, status)
        self.assertIn("exit status 3: model would not load", log)
        status, _, log = self.compare(mine, os.path.join(self.folder.name, "absent"))
        self.assertEqual(1, status)
        self.assertIn("absent: cannot be run", log)

    def test_reports_are_appended_without_folders_of_the_machine(self):
        mine = self.program("mine", [result(512, 0, [1.0])])
        theirs = self.program("theirs", [result(512, 0, [1.0])])
        path = os.path.join(self.folder.name, "results.md")
        with open(path, "w", encoding="utf-8") as file:
            file.write("before\n")
        status, _, log = self.compare(mine, theirs, "--append", path, "--title", "CPU")
        self.assertEqual(0, status, log)
        with open(path, encoding="utf-8") as file:
            text = file.read()
        self.assertTrue(text.startswith("before\n\n## 2"), text)
        self.assertIn(", CPU\n", text)
        self.assertIn("`mine bench -m dir", text)
        self.assertNotIn(self.folder.name, text)

    def test_everything_printed_is_kept_with_where_it_ran(self):
        bound = {"memory_bandwidth": 30e9, "share_of_bound": 0.75, "model_filename": "/a/dir"}
        mine = self.program("mine", [result(0, 32, [2.0], **bound)])
        theirs = self.program("theirs", [result(0, 32, [1.0])])
        path = os.path.join(self.folder.name, "raw", "run.json")
        status, text, log = self.compare(mine, theirs, "--raw", path, "--peer-name", "peer",
                                         "--prefix", "env OMP_PROC_BIND=close", "--title", "CPU")
        self.assertEqual(0, status, log)
        self.assertIn("30.0 to 30.0 GB/s", text)
        self.assertIn("| 2.00 (2.00 to 2.00) | 0.75 ", text)
        self.assertIn("OMP_PROC_BIND=close", text)
        with open(path, encoding="utf-8") as file:
            kept = json.load(file)
        self.assertEqual(["side by side", "CPU", 2],
                         [kept[key] for key in ("kind", "title", "threads")])
        self.assertEqual([("moeflux", 1), ("peer", 1), ("moeflux", 2), ("peer", 2)],
                         [(run["program"], run["round"]) for run in kept["runs"]])
        self.assertEqual("dir", kept["runs"][0]["results"][0]["model_filename"])
        self.assertEqual([1.0], kept["runs"][1]["results"][0]["samples_ts"])
        self.assertEqual(3, len(kept["runs"][0]["load_average"]))
        self.assertEqual("close", kept["placement"]["variables"]["OMP_PROC_BIND"])
        self.assertEqual(["abc", "abc"], [program["commit"] for program in kept["programs"]])
        self.assertTrue(kept["machine"]["cpu"] and kept["machine"]["kernel"])

    def test_a_second_moeflux_is_told_from_the_first(self):
        other = os.path.join(self.folder.name, "other")
        os.mkdir(other)
        mine = self.program("moeflux", [result(512, 0, [2.0])])
        theirs = self.program(os.path.join("other", "moeflux"), [result(512, 0, [1.0])])
        status, text, log = self.compare(mine, theirs, "--rounds", "1")
        self.assertEqual(0, status, log)
        self.assertIn("the other moeflux, tokens/s", text)
        self.assertIn("| 2.00 ", text)


if __name__ == "__main__":
    unittest.main()
