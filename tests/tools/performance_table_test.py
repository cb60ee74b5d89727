"""benchmarks/performance_table.py: rows from raw files, and this repository's table and results."""

import io
import os
import re
import subprocess
import sys
import tempfile
import unittest
from contextlib import redirect_stderr

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
sys.path.insert(0, os.path.join(ROOT, "benchmarks"))
import raw_results  # noqa: E402
import performance_table  # noqa: E402

BUILD = {"type": "Release", "compiler": "GNU 12.2.0", "flags": "", "machine_flags": [],
         "options": []}


def mine(commit, test, speeds, **more):
    """A result of moeflux; test is n_prompt, n_gen, n_depth."""
    return {"build_commit": commit, "backends": "cpu", "n_threads": 2, "n_prompt": test[0],
            "device": "cpu (avx512-vnni int8, 2 threads)", "n_gen": test[1], "n_depth": test[2],
            "samples_ts": speeds, "share_of_bound": speeds[0] / 64, **more}


def theirs(test, speeds):
    return {"n_prompt": test[0], "n_gen": test[1], "samples_ts": speeds}


def side_by_side(commit):
    """Two rounds: prompts twice as fast as the peer's, tokens 1.25 and 1.5 times."""
    def run(program, turn, results):
        return {"program": program, "round": turn, "results": results}
    prompt, decode = (512, 0, 0), (0, 64, 0)
    runs = [run("moeflux", 1, [mine(commit, prompt, [600.0]), mine(commit, decode, [50.0])]),
            run("peer", 1, [theirs((512, 0), [300.0]), theirs((0, 64), [40.0])]),
            run("moeflux", 2, [mine(commit, prompt, [640.0]), mine(commit, decode, [60.0])]),
            run("peer", 2, [theirs((512, 0), [320.0]), theirs((0, 64), [40.0])])]
    return {"kind": "side by side", "machine": {"cpu": "Some CPU", "gpus": []},
            "programs": [{"name": "moeflux", "commit": commit, "build": BUILD,
                          "sources_differ": False},
                         {"name": "peer", "commit": "def", "build": BUILD}], "runs": runs}


def streaming(commit):
    def run(name, result):
        return {"program": "moeflux", "name": name, "results": [result]}
    prompt, decode = mine(commit, (512, 0, 0), [72.5]), mine(commit, (0, 64, 0), [4.05])
    return {"kind": "streaming", "machine": {"cpu": "Some CPU", "gpus": []}, "limit_bytes": 8 << 30,
            "programs": side_by_side(commit)["programs"][:1],
            "bars": [{"what": "prefill of 512", "ratio": "1.06"},
                     {"what": "decode, uniform routing", "ratio": "1.13"},
                     {"what": "decode against --expert-io mmap", "ratio": "7.5"}],
            "runs": [run("prefill", {**prompt, "avg_ts": 72.5}),
                     run("decode", {**decode, "avg_ts": 4.05})]}


class TableTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = folder.name
        self.git("init", "-q")
        self.document("", "after\n")
        self.git("add", "-A")
        self.git("commit", "-qm", "one")
        self.commit = self.git("rev-parse", "--short=9", "HEAD")

    def git(self, *words):
        identity = ["-c", "user.name=a", "-c", "user.email=a@b"]
        return subprocess.run(["git", "-C", self.root, *identity, *words], check=True,
                              capture_output=True, text=True).stdout.strip()

    def document(self, table, after):
        path = os.path.join(self.root, performance_table.DOCUMENT)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(f"before\n{performance_table.BEGIN}\n{table}"
                       f"{performance_table.END}\n{after}")

    def keep(self, name, record):
        raw_results.write(os.path.join(self.root, performance_table.RAW, name), record)

    def written(self):
        """The rows of the table once it was made anew."""
        self.assertEqual(0, performance_table.main([], self.root))
        text = raw_results.text_of(os.path.join(self.root, performance_table.DOCUMENT))
        self.assertTrue(text.startswith("before\n") and text.endswith("after\n"), text)
        return [[cell.strip() for cell in line.strip("|").split("|")]
                for line in performance_table.split(text)[1].splitlines()[2:]]

    def test_a_row_has_medians_ranges_ratios_and_the_file_they_are_from(self):
        self.keep("2026-01-02-cpu-2-cores.json", side_by_side(self.commit))
        row = self.written()[0]
        self.assertEqual(
            ["2 cores of Some CPU (avx512-vnni int8), 8 layers, all in memory",
             "pp512: 620 (600 to 640)", "tg64: 55.0 (50.0 to 60.0)",
             "peer: prompt 2.00 (2.00 to 2.00) times its 310 (300 to 320), "
             "decode 1.38 (1.25 to 1.50) times its 40.0", "0.78 to 0.94",
             f"[{self.commit}](../benchmarks/results/raw/2026-01-02-cpu-2-cores.json)"],
            row)
        self.assertEqual([], performance_table.complaints(self.root))

    def test_a_row_says_nothing_of_tests_that_were_not_run(self):
        self.keep("2026-01-02-cpu-2-cores.json", side_by_side(self.commit))
        self.assertEqual(1, len(self.written()))  # no row for a depth without figures

    def test_streaming_has_its_own_bars(self):
        self.keep("2026-01-02-streaming.json", streaming(self.commit))
        row = self.written()[0]
        self.assertIn("in 8 GiB", row[0])
        self.assertEqual(["pp512: 72.5", "tg64: 4.05"], row[1:3])
        self.assertIn("decode: 1.13 of what the drive gives", row[3])

    def test_the_newest_file_of_a_name_counts(self):
        old = side_by_side(self.commit)
        old["machine"]["cpu"] = "Old CPU"
        self.keep("2026-01-01-cpu-2-cores.json", old)
        self.keep("2026-01-02-cpu-2-cores.json", side_by_side(self.commit))
        self.assertIn("Some CPU", self.written()[0][0])

    def problem(self, record):
        self.keep("2026-01-02-cpu-2-cores.json", record)
        self.written()
        said = io.StringIO()
        with redirect_stderr(said):
            self.assertEqual(1, performance_table.main(["--check"], self.root))
        return said.getvalue()

    def test_a_figure_typed_into_the_table_is_found(self):
        self.keep("2026-01-02-cpu-2-cores.json", side_by_side(self.commit))
        self.written()
        path = os.path.join(self.root, performance_table.DOCUMENT)
        text = raw_results.text_of(path).replace("620 (600", "720 (600")
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        self.assertIn("is not what benchmarks/results/raw gives",
                      "".join(performance_table.complaints(self.root)))

    def test_a_commit_outside_of_the_history_is_found(self):
        self.assertIn("commit 0123abc is not in the history", self.problem(side_by_side("0123abc")))
        self.git("commit", "-q", "--allow-empty", "-m", "two")
        gone = self.git("rev-parse", "--short=9", "HEAD")
        self.git("reset", "-q", "--hard", "HEAD~1")  # as after a rebase: there, but of no branch
        self.assertIn(f"commit {gone} is not in the history", self.problem(side_by_side(gone)))

    def test_runs_of_two_commits_are_found(self):
        record = side_by_side(self.commit)
        record["runs"][2]["results"][0]["build_commit"] = "0123abc"
        self.assertIn("expected one", self.problem(record))

    def test_a_program_of_unknown_making_is_found(self):
        record = side_by_side(self.commit)
        record["programs"][0]["sources_differ"] = True
        record["programs"][1].update(build=None, commit="unknown")
        said = self.problem(record)
        self.assertIn("the sources of moeflux differed", said)
        self.assertIn("peer does not say its commit", said)
        self.assertIn("the compiler and flags of peer are not known", said)


class RepositoryTest(unittest.TestCase):
    def test_the_table_is_what_the_raw_files_give(self):
        self.assertEqual([], performance_table.complaints(ROOT))

    def test_results_cite_commits_of_this_history_or_say_that_they_are_not(self):
        folder = os.path.join(ROOT, "benchmarks", "results")
        for name in sorted(n for n in os.listdir(folder) if n.endswith(".md")):
            text = raw_results.text_of(os.path.join(folder, name))
            cited = {word for word in re.findall(r"\b[0-9a-f]{7,9}\b", text)
                     if re.search("[a-f]", word) and re.search("[0-9]", word)}
            said = "".join(re.findall(r"^Not in this repository: .*?\n\n", text + "\n\n",
                                      re.MULTILINE | re.DOTALL))
            foreign = {c for c in cited if performance_table.is_of_this_history(c, ROOT) is False}
            with self.subTest(name):
                self.assertEqual(set(), {c for c in foreign if c not in said})


if __name__ == "__main__":
    unittest.main()
