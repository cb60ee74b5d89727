"""benchmarks/raw_results.py: what it says of programs and machines, and the files it writes."""

import json
import os
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
sys.path.insert(0, os.path.join(ROOT, "benchmarks"))
import raw_results as raw  # noqa: E402

CACHE = """# made by CMake
CMAKE_BUILD_TYPE:STRING=Release
CMAKE_CXX_FLAGS:STRING=-fno-plt
CMAKE_CXX_FLAGS_RELEASE:STRING=-O3 -DNDEBUG
GGML_NATIVE:BOOL=ON
GGML_CUDA:BOOL=OFF
GGML_CUDA_DMMV_X:STRING=32
"""
COMPILER = 'set(CMAKE_CXX_COMPILER_ID "GNU")\nset(CMAKE_CXX_COMPILER_VERSION "12.2.0")\n'
COMMANDS = '[{"command": "c++ -mavx2 -O3 -mcpu=x -c a.cc"}, {"command": "c++ -mavx2 -c b.cc"}]'


class FolderTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def put(self, name, text):
        path = os.path.join(self.folder, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return path


class BuildTest(FolderTest):
    def test_compiler_flags_and_options_come_from_the_cmake_folder_above(self):
        self.put("build/CMakeCache.txt", CACHE)
        self.put("build/CMakeFiles/3.25/CMakeCXXCompiler.cmake", COMPILER)
        self.put("build/compile_commands.json", COMMANDS)
        build = raw.build_of(self.put("build/bin/llama-bench", ""))
        self.assertEqual({"type": "Release", "compiler": "GNU 12.2.0",
                          "flags": "-fno-plt -O3 -DNDEBUG", "machine_flags": ["-mavx2", "-mcpu=x"],
                          "options": ["GGML_NATIVE"]}, build)
        self.assertEqual("GNU 12.2.0 Release -fno-plt -O3 -DNDEBUG -mavx2 -mcpu=x GGML_NATIVE",
                         raw.build_line(build))

    def test_a_gpu_build_names_its_compiler_and_architectures(self):
        nvcc = self.put("nvcc", "#!/bin/sh\necho 'Cuda tools, release 13.0, V13.0.88'\n")
        os.chmod(nvcc, 0o755)
        self.put("CMakeCache.txt", CACHE + f"MOEFLUX_CUDA:BOOL=ON\nMOEFLUX_NVCC:FILEPATH={nvcc}\n"
                 "MOEFLUX_CUDA_ARCHITECTURES:STRING=90a\n")
        build = raw.build_of(self.put("bin/moeflux", ""))
        self.assertEqual("NVIDIA 13.0.88", build["cuda_compiler"])
        self.assertEqual("90a", build["cuda_architectures"])
        self.assertIn("CUDA NVIDIA 13.0.88 for 90a", raw.build_line(build))

    def test_a_program_built_elsewhere_has_no_build(self):
        self.assertIsNone(raw.build_of(self.put("bin/moeflux", "")))
        self.assertEqual("built elsewhere", raw.build_line(None))


class SourcesTest(FolderTest):
    def git(self, *words):
        identity = ["-c", "user.name=a", "-c", "user.email=a@b"]
        return subprocess.run(["git", "-C", self.folder, *identity, *words], check=True,
                              capture_output=True, text=True).stdout.strip()

    def test_differ_where_a_source_was_changed_or_added_since_the_commit(self):
        self.git("init", "-q")
        self.put("src/a.cc", "1\n")
        self.git("add", "-A")
        self.git("commit", "-qm", "one")
        commit = self.git("rev-parse", "--short=9", "HEAD")
        self.assertIs(False, raw.sources_differ(commit, self.folder))
        self.put("README.md", "no source\n")
        self.assertIs(False, raw.sources_differ(commit, self.folder))
        added = self.put("src/b.cc", "")
        self.assertIs(True, raw.sources_differ(commit, self.folder))
        os.unlink(added)
        self.put("src/a.cc", "2\n")
        self.assertIs(True, raw.sources_differ(commit, self.folder))
        self.git("commit", "-qam", "two")  # HEAD is clean, and still not what was measured
        self.assertIs(True, raw.sources_differ(commit, self.folder))
        self.assertIsNone(raw.sources_differ("0123456", self.folder))


class WriteTest(FolderTest):
    def test_a_file_is_the_record_with_a_line_for_every_run(self):
        record = {"kind": "x", "machine": {"cpus": 2}, "programs": [], "runs": [
            {"program": "a", "results": [{"n": 1}, {"n": 2}]}, {"program": "b", "results": []}]}
        path = os.path.join(self.folder, "raw", "a.json")
        raw.write(path, record)
        text = raw.text_of(path)
        self.assertEqual(record, json.loads(text))
        self.assertEqual(9, text.count("\n"))

    def test_keeps_what_bench_printed_without_folders(self):
        bench = self.put("bench.json", json.dumps(
            [{"build_commit": "abc", "model_filename": "/somewhere/model/", "n_gen": 1}]))
        raw.main([bench, os.path.join(self.folder, "raw.json"), "--moeflux", "moeflux",
                  "--command", "bench -m model"])
        text = raw.text_of(os.path.join(self.folder, "raw.json"))
        record = json.loads(text)
        self.assertNotIn("somewhere", text)
        self.assertEqual("bench", record["kind"])
        self.assertEqual("abc", record["programs"][0]["commit"])
        self.assertEqual([{"build_commit": "abc", "model_filename": "model", "n_gen": 1}],
                         record["runs"][0]["results"])
        self.assertEqual(3, len(record["machine"]["load_average"]))


class PlacementTest(unittest.TestCase):
    def test_says_where_the_programs_threads_may_run(self):
        placed = raw.placement(["env", "OMP_PLACES=cores"])
        self.assertEqual("env OMP_PLACES=cores", placed["prefix"])
        self.assertEqual("cores", placed["variables"]["OMP_PLACES"])
        if hasattr(os, "sched_getaffinity"):
            self.assertEqual(sorted(os.sched_getaffinity(0)), placed["cpus"])


if __name__ == "__main__":
    unittest.main()
