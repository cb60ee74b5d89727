"""cmake/find_python.cmake takes the first interpreter that has NumPy, not the first interpreter."""

import os
import shutil
import subprocess
import tempfile
import unittest

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
SCRIPT = f"""
include({ROOT}/cmake/find_python.cmake)
moeflux_find_python(found)
message("found:${{found}}")
"""


class FindPythonTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.path = []

    def python(self, name, modules):
        """A folder on the PATH whose python3 can import these modules."""
        folder = os.path.join(self.folder.name, name)
        os.mkdir(folder)
        program = os.path.join(folder, "python3")
        with open(program, "w", encoding="utf-8") as file:
            status = int("numpy" not in modules)
            file.write(f'#!/bin/sh\ncase "$2" in *import\\ numpy*) exit {status}; esac\nexit 1\n')
        os.chmod(program, 0o755)
        self.path.append(folder)
        return program

    def found(self):
        script = os.path.join(self.folder.name, "find.cmake")
        with open(script, "w", encoding="utf-8") as file:
            file.write(SCRIPT)
        done = subprocess.run([shutil.which("cmake"), "-P", script], check=True, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              env={"PATH": ":".join(self.path + ["/bin"])})
        return done.stdout.split("found:")[1].strip()

    def test_an_interpreter_without_numpy_is_passed_over(self):
        self.python("shims", [])
        with_numpy = self.python("system", ["numpy"])
        self.assertEqual(with_numpy, self.found())

    def test_among_those_with_numpy_the_path_decides(self):
        first = self.python("own", ["numpy"])
        self.python("system", ["numpy"])
        self.assertEqual(first, self.found())


if __name__ == "__main__":
    unittest.main()
